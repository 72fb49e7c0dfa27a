"""Values that their answers do not bear out."""

from datetime import date

import pytest

from memagent_batch.domain.follow_ups.grounds import clause_misfit, date_misfit, unit_misfit

JUNE = date(2025, 6, 12)


@pytest.mark.parametrize(
    ("answer", "number", "unit"),
    [
        ("$4,850", 4850, "GBP"),
        ("five years", 5, "GBP"),
        ("68,400 pounds", 68400, "USD"),
        ("eight per cent", 8, "years"),
        ("USD 4,850 (GBP 3,800)", 4850, "GBP"),
        ("three months", 90, "days"),
        ("nine (9) business days", 9, "months"),
        ("US$ 5 million", 5_000_000, "CAD"),
        ("250.000 €", 250_000, "kUSD, US$"),
        ("f\u0131ve years", 5, "GBP"),
        ("5 \u0130NR", 5, "GBP"),
    ],
)
def test_number_in_another_unit_than_the_answer_has_is_invalid(answer: str, number: float, unit: str) -> None:
    assert f"which is not in {unit}" in (unit_misfit(number, unit=unit, answer=answer) or "")


@pytest.mark.parametrize(
    ("answer", "number"),
    [("1 April 2024", 1), ("1 March 2025", 2025), ("15th of September 2023", 15), ("Jun 3, 2025", 3), ("3.6.2025", 3)],
)
def test_number_of_a_date_is_no_number_in_a_unit(answer: str, number: float) -> None:
    assert "is a date" in (unit_misfit(number, unit="months", answer=answer) or "")


@pytest.mark.parametrize(
    ("answer", "number", "unit"),
    [
        ("three months from 1 April 2024", 3, "months"),
        ("from 1 April 2024 to 30 June 2024", 3, "months"),
        ("4,850", 4850, "GBP"),
        ("$4,850 a month", 4850, "CAD per month"),
        ("250,000 pounds sterling", 250_000, "gbp"),
        ("USD 1.2m", 1.2, "million USD"),
        ("six (6) per cent", -6, "%"),
        ("a fee of 500 for five years", 500, "EUR"),
        ("twenty-four months", 2, "years"),
        ("two weeks' notice", 14, "days"),
        ("EUR 5,000 and 19% VAT", 5950, "EUR"),
        ("30 Tage", 30, "days"),
        ("$5", 5, "barrels"),
        ("two hundred and fifty thousand dollars", 250_000, "USD"),
    ],
)
def test_number_in_the_answer_s_unit_or_of_an_answer_without_one_stays(answer: str, number: float, unit: str) -> None:
    assert unit_misfit(number, unit=unit, answer=answer) is None


@pytest.mark.parametrize(
    "answer",
    [
        *("June 12th, 2025", "2025-06-12", "12/06/25", "20250612", "2025年6月12日", "12 juin 2025", "१२ जून २०२५"),
        *("the twelfth day of June, 2025", "On 12 June 2025 or 14 days after signing", "it may end on 12 Jun 2025"),
        *("12 มิถุนายน 2568", "令和7年6月12日", "二〇二五年六月十二日"),
    ],
)
def test_date_that_the_answer_has_or_that_is_of_another_script_stays(answer: str) -> None:
    assert date_misfit(JUNE, answer=answer, context="") is None


@pytest.mark.parametrize(
    ("answer", "day", "context"),
    [
        ("15.2", date(1522, 2, 15), "15.2"),
        ("15.2", date(2025, 2, 15), "signed in 2025"),
        ("48 hours", date(2018, 1, 4), "4 January 2018"),
        ("five years", JUNE, "signed on 12 June 2025"),
        ("13 June 2025", JUNE, ""),
        ("2025年6月13日", JUNE, ""),
        ("12 June 2024", JUNE, ""),
        ("12 May 2025", JUNE, ""),
        ("12 Sept", JUNE, "12 June 2025"),
        ("June 2025", date(2025, 6, 1), "in June 2025"),
        ("25 June", date(2025, 6, 25), "25 June"),
    ],
)
def test_date_that_the_answer_does_not_have_is_invalid(answer: str, day: date, context: str) -> None:
    assert f"does not have the year, month and day of {day}" in (date_misfit(day, answer=answer, context=context) or "")


@pytest.mark.parametrize("answer", ["the Effective Date", "12 June", "upon signing in 2025"])
def test_date_that_the_answer_has_in_part_is_completed_by_its_notes(answer: str) -> None:
    assert date_misfit(JUNE, answer=answer, context="Effective Date: 12 June 2025") is None


def test_number_of_a_clause_is_no_number_in_a_unit() -> None:
    text = "3. RENT\n3.1 The Tenant pays $4,850.\n3.2 Clause 3.1 does not bind the Landlord.\nInterest is 3.2 per cent."
    assert clause_misfit("3.1", texts=[text]) == "'3.1' is the number of a clause"
    assert clause_misfit("3.2", texts=[text]) is None
    assert clause_misfit("9.9", texts=[text]) is None


def test_answer_of_a_model_that_repeats_itself_is_judged_as_any_other() -> None:
    for number in ("5", "five"):
        assert unit_misfit(5, unit="USD", answer=number + " million" * 60) is None
        assert unit_misfit(5, unit="USD", answer=number + " million" * 60 + " pounds")
    assert date_misfit(JUNE, answer="1" * 5000, context="Effective Date: 12 June 2025")
