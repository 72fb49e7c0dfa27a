"""Numbers and dates in the notations and words of common languages."""

import time
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.loop.texts.figures import days_in, numbers_in, states_date, states_number

DAY = date(2024, 3, 5)


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        *[
            (text, 4_250_000, "EUR")
            for text in ("EUR 4,250,000", "4.250.000 €", "4 250 000 EUR", "4\u202f250\u202f000,00 €")
        ],
        *[
            (text, 4_250_000, "EUR")
            for text in ("EUR 4.25 million", "4,25 Mio. EUR", "€4.25m", "EUR 4,250k", "4,25 Mio")
        ],
        *[(text, 4_250_000, "EUR") for text in ("TEUR 4.250", "k€ 4,250", "EUR million 4.25", "Euro 4250000,-")],
        ("EUR four million two hundred fifty thousand", 4_250_000, "EUR"),
        ("USD 5.0 million (five million US dollars)", 5e6, "USD"),
        ("CHF 4'250’000.00", 4_250_000, "CHF"),
        ("Fr. 15'000.--", 15_000, "CHF"),
        ("₹42,50,000", 4_250_000, "INR"),
        ("10 lakh rupees", 1e6, "INR"),
        ("3 mil millones de euros", 3e9, "EUR"),
        ("USD 1.2bn", 1.2e9, "USD"),
        ("EUR million\n4.25", 4_250_000, "EUR"),
        ("EUR Mio.\t4,25", 4_250_000, "EUR"),
        ("5 млн", 5e6, ""),
        ("金額は5億円", 5e8, "JPY"),
        ("EUR 5,000¹", 5000, "EUR"),
        ("in 2024 EUR 500", 500, "EUR"),
        ("4,250,000", 4.25, "million EUR"),
        ("EUR 4,250,000", 4.25, "EUR m"),
        ("EUR 4.25 million", 4.25, "Mio. EUR"),
        ("4,250", 4250, "TEUR"),
        ("0.125 percent", 0.125, "percent"),
        ("0,125 %", 0.125, "%"),
        ("5½ %", 5.5, "percent"),
        ("50 basis points", 0.5, "percent"),
        ("six (6) per cent", 6, "%"),
        ("5 %", 0.05, ""),
        ("-5 %", -5, "%"),
        ("minus 5 %", -5, "%"),
        ("two hundred and fifty thousand dollars", 250_000, "USD"),
        ("twelve hundred euros", 1200, "EUR"),
        ("24 months", 2, "years"),
        ("one and a half years", 18, "months"),
        ("two weeks' notice", 14, "days"),
        ("nine (9) business days", 9, "days"),
        ("within 30-60 days", 30, "days"),
        ("dreißig Tage", 30, "days"),
        ("vierundzwanzig Monate", 24, "months"),
        ("quinze jours", 15, "days"),
        ("treinta días", 30, "days"),
        ("dertig dagen", 30, "days"),
        ("5 m", 5, "m"),
        ("٤٢٥٠", 4250, ""),
        ("signed on 12 June 2025", 2025, ""),
    ],
)
def test_number_is_found_in_any_notation(text: str, value: float, unit: str) -> None:
    assert states_number(text, value, unit=unit)
    assert numbers_in(text)


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("EUR 4,250,000", 425_000, "EUR"),
        ("EUR 4,250,000", 42_500_000, "EUR"),
        ("EUR 4,250,000", 4_250_000, "million EUR"),
        ("4.250.000 €", 4250, "EUR"),
        ("4 250 000", 425, ""),
        ("EUR 4.25 million", 4.25, "EUR"),
        ("€4.25m", 4.25, "EUR"),
        ("250k", 250, "USD"),
        ("five years", 5, "GBP"),
        ("CHF 100", 100, "EUR"),
        ("3 months", 90, "days"),
        ("two weeks", 14, "months"),
        ("nine (9) business days", 9, "months"),
        ("1 March 2025", 1, "months"),
        ("0.125 percent", 125, "percent"),
        ("5 %", 0.05, "%"),
        ("eight per cent", 80, "percent"),
        ("EUR -5,000", 5000, "EUR"),
        ("the fee", 0, ""),
    ],
)
def test_other_number_is_not_found(text: str, value: float, unit: str) -> None:
    assert not states_number(text, value, unit=unit)


def test_scale_apart_from_its_number_counts_only_where_it_is_allowed() -> None:
    table = "in EUR thousands\nRevenue 4,250"
    assert states_number(table, 4_250_000, unit="EUR", scales_apart=True)
    assert not states_number(table, 4_250_000, unit="EUR")


@given(st.integers(0, 10**15), st.sampled_from([",", ".", " ", "'", "\u00a0", "\u202f"]))
def test_grouped_number_is_found_and_with_a_zero_less_it_is_not(number: int, mark: str) -> None:
    text = f"EUR {number:,}".replace(",", mark)
    assert states_number(text, number, unit="EUR")
    if number >= 10**6 and number % 10 == 0:
        assert not states_number(text, number // 10, unit="EUR")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "5 March 2024",
            "March 5, 2024",
            "March 5th 2024",
            "MARCH 5, 2024",
            "5 Mar. 2024",
            "on the 5th of March, 2024",
        ),
        *(
            "this fifth day of March, 2024",
            "2024 March 5",
            "5-MAR-24",
            "5. März 2024",
            "5.März.2024",
            "den 5. Marz 2024",
        ),
        *("le 5 mars 2024", "5 de marzo de 2024", "5 de março de 2024", "5 marzo 2024", "5 maart 2024", "5 marca 2024"),
        *(
            "5 марта 2024 г.",
            "5. března 2024",
            "5. maaliskuuta 2024",
            "2024年3月5日",
            "2024년 3월 5일",
            "２０２４年３月５日",
        ),
        *("2024-03-05", "2024/03/05", "20240305", "05.03.2024", "5. 3. 2024", "5/3/2024", "03/05/2024", "5.3.24"),
        *("from 1 to 5 March 2024", "5–9 March 2024", "vom 5. bis 9. März 2024", "du 5 au 9 mars 2024"),
        *("5 March to 9 April 2024", "Theresa May, 05/03/2024", "05.03.2024 (Jan Kowalski)"),
    ],
)
def test_date_is_found_in_any_notation(text: str) -> None:
    assert states_date(text, DAY)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "6 March 2024",
            "5 April 2024",
            "5 March 2023",
            "5. Juli 2024",
            "5 mai 2024",
            "2023-03-05",
            "15.2",
            "end of March",
        ),
        *("March 2024", "2024", "5 July 2024 to 31 March 2025", "10.03.2024 and 05.04.2024", "5 days in March 2024"),
    ],
)
def test_other_date_is_not_found(text: str) -> None:
    assert not states_date(text, DAY)


def test_day_without_a_year_is_partial() -> None:
    (day,) = days_in("am 5. März")
    assert (day.day, day.month, day.year) == (5, 3, None)


PIECES = (
    "EUR ",
    "TEUR",
    "$",
    "million",
    "Mio.",
    "k",
    " ",
    "\n",
    "\u00a0",
    "5",
    "1 000",
    ",",
    ".",
    "-",
    "½",
    "%",
    "(",
    ")",
)
WORDS = (
    "two",
    "thousand",
    " and a half",
    "per cent",
    "of",
    "fifth",
    "5th",
    "March",
    "mai",
    "2024",
    "/",
    "days",
    "億",
    "٤",
)


@given(st.lists(st.sampled_from([*PIECES, *WORDS]), max_size=12).map("".join) | st.text(max_size=60))
def test_any_text_can_be_searched(text: str) -> None:
    states_number(text, 5.0, unit=text)
    states_date(text, DAY)


@pytest.mark.parametrize(
    "text",
    ["1" * 5000, "5" + " million" * 600, "1 " * 5000, "1," * 5000, "one " * 3000, "5 March " * 500, "1 000 " * 2000],
)
def test_model_that_repeats_itself_costs_no_time(text: str) -> None:
    began = time.process_time()
    states_number(text, 5.0, unit="EUR")
    states_date(text, DAY)
    assert time.process_time() - began < 5
