"""Values beside their answers and evidence: what follows is not flagged, what does not needs a look."""

import pytest

from memagent_batch.loop.completions import is_refusal
from memagent_batch.loop.follow_ups.answer_types import Bool, Date, Json, Label, Labels, Number, ValueType
from memagent_batch.loop.follow_ups.doubts import Doubt, find_doubt
from memagent_batch.loop.follow_ups.values import NOTHING_STATED, TypedValue, ValueStatus, written_value

TEXT, EUR, DAYS = ValueType(), Number(unit="EUR"), Number(unit="days")
RISK, TAGS = Label("low", "high", "very high"), Labels("a", "b", "c")
DEAL = Json({"type": "object", "properties": {"sum": {"type": "number"}, "day": {"type": "string", "format": "date"}}})
NOT_STATED = "not stated"


def value_of(written: str, value_type: ValueType) -> TypedValue:
    value = NOTHING_STATED if written == NOT_STATED else written_value(written, value_type)
    assert value.status is not ValueStatus.INVALID
    return value


@pytest.mark.parametrize(
    ("value_type", "written", "answer"),
    [
        (EUR, "4250000", "EUR 4,250,000"),
        (EUR, "4250000", "Die Summe beträgt 4,25 Mio. EUR."),
        (EUR, "4250000", "quatre millions; 4 250 000 €"),
        (DAYS, "30", "thirty (30) days after receipt"),
        (DAYS, "14", "two weeks"),
        (Number(unit="%"), "0.125", "0.125 percent"),
        (EUR, NOT_STATED, "The contract does not state an amount in clause 5."),
        (EUR, NOT_STATED, "I'm sorry, I cannot find the amount in the document."),
        (Date(), "2024-03-05", "5. März 2024"),
        (Date(), "2016-07-13", "Theresa May, 13/07/2016"),
        (Date(), NOT_STATED, "Kein Datum genannt"),
        (Bool(), "yes", "Yes, it does."),
        (Bool(), "yes", "Ja – siehe § 5."),
        (Bool(), "no", "Nein, das ist verboten."),
        (Bool(), "no", "The document does not mention it."),
        (Bool(), "yes", "No contract may be changed orally."),
        (RISK, "very high", "The risk is very high."),
        (RISK, "low", "hardly any risk"),
        (TAGS, "a|b", "a and b"),
        (TAGS, "a|c", "the first and the last"),
        (TEXT, "Malta", "Malta"),
        (TEXT, "x", "The tenant may not sublet the flat."),
        (TEXT, NOT_STATED, "Not specified"),
        (TEXT, NOT_STATED, "nicht angegeben"),
        (TEXT, NOT_STATED, "Aucune information"),
        (TEXT, NOT_STATED, "No se indica"),
        (TEXT, NOT_STATED, "unbekannt"),
        (TEXT, NOT_STATED, "未提及"),
        (TEXT, NOT_STATED, "N/A"),
        (TEXT, NOT_STATED, "-"),
        (DEAL, '{"sum": 4250000, "day": "2024-03-05"}', "EUR 4.25 million on 5 March 2024"),
        (DEAL, '{"sum": null, "day": "2024-03-05"}', "on 5 March 2024"),
    ],
)
def test_value_that_follows_from_its_answer_is_not_doubted(value_type: ValueType, written: str, answer: str) -> None:
    assert find_doubt(value_of(written, value_type), value_type, answer=answer) is None


@pytest.mark.parametrize(
    ("value_type", "written", "answer"),
    [
        (EUR, "425000", "EUR 4,250,000"),
        (EUR, "42500000", "EUR 4,250,000"),
        (EUR, "4.25", "4,25 Mio. EUR"),
        (EUR, "5", "five years"),
        (EUR, "100", "CHF 100"),
        (EUR, "5", "fees"),
        (DAYS, "3", "30 days"),
        (DAYS, "90", "three months"),
        (EUR, NOT_STATED, "EUR 4,250,000"),
        (EUR, NOT_STATED, "EUR 5,000, not including VAT"),
        (EUR, NOT_STATED, "Malta"),
        (Date(), "2024-07-05", "5. März 2024"),
        (Date(), "2024-05-03", "5 mars 2024"),
        (Date(), "2024-03-05", "5 March"),
        (Date(), "1522-02-15", "15.2"),
        (Date(), NOT_STATED, "5. März 2024"),
        (Bool(), "no", "Yes, it does."),
        (Bool(), "yes", "Non. C'est interdit."),
        (Bool(), "yes", "The document does not state this."),
        (Bool(), NOT_STATED, "Yes, it does."),
        (RISK, "high", "The risk is low."),
        (RISK, "high", "The risk is very high."),
        (RISK, "low", "not stated in the text"),
        (RISK, NOT_STATED, "high"),
        (TAGS, "a", "a and b"),
        (TAGS, "a|b|c", "a and b"),
        (TEXT, NOT_STATED, "Malta"),
        (TEXT, "x", "The document does not mention it."),
        (TEXT, "x", "Keine Angabe."),
        (TEXT, "x", "Non précisé"),
        (DEAL, '{"sum": 425000, "day": "2024-03-05"}', "EUR 4.25 million on 5 March 2024"),
        (DEAL, '{"sum": 4250000, "day": "2024-03-06"}', "EUR 4.25 million on 5 March 2024"),
    ],
)
def test_value_that_does_not_follow_from_its_answer_needs_a_look(
    value_type: ValueType, written: str, answer: str
) -> None:
    assert find_doubt(value_of(written, value_type), value_type, answer=answer) is Doubt.ANSWER


@pytest.mark.parametrize(
    ("value_type", "written", "answer", "sentences", "doubt"),
    [
        (EUR, "4250000", "EUR 4,250,000", ["The price is 4.25 million euros."], None),
        (EUR, "4250000", "EUR 4,250,000", ["in EUR thousands", "Price 4,250"], None),
        (EUR, "4250000", "EUR 4,250,000", ["The price is EUR 425,000."], Doubt.EVIDENCE),
        (EUR, "4250000", "EUR 4,250,000", [], Doubt.EVIDENCE),
        (Date(), "2024-03-05", "5 March 2024", ["Signed on 05.03.2024."], None),
        (Date(), "2024-03-05", "5 March 2024", ["Signed in March 2024."], Doubt.EVIDENCE),
        (Date(), "2024-03-05", "5 March", ["Signed on 05.03.2024."], None),
        (Date(), "2024-03-05", "6 March", ["Signed on 05.03.2024."], Doubt.ANSWER),
        (Bool(), "yes", "yes", ["It may be ended."], None),
        (DAYS, NOT_STATED, NOT_STATED, [], None),
    ],
)
def test_number_or_date_occurs_in_its_evidence_or_needs_a_look(
    value_type: ValueType, written: str, answer: str, sentences: list[str], doubt: Doubt | None
) -> None:
    assert find_doubt(value_of(written, value_type), value_type, answer=answer, sentences=sentences) is doubt


def test_value_that_is_invalid_has_no_other_doubt() -> None:
    assert find_doubt(TypedValue(status=ValueStatus.INVALID), EUR, answer="fees") is None


def test_json_value_may_be_made_of_the_whole_response_and_the_memory() -> None:
    value = value_of('{"sum": 5, "day": null}', DEAL)
    assert find_doubt(value, DEAL, answer="five") is None
    assert find_doubt(value, DEAL, answer="see above", notes="The sum is 5.") is None


@pytest.mark.parametrize(
    "answer",
    [
        *(
            "I'm sorry, but I can't assist with that.",
            "I’m sorry, I can’t help with that",
            "I cannot help with that request.",
        ),
        *(
            "I am unable to help with this.",
            "As an AI language model, I cannot provide assistance with that.",
            "I can't comply.",
        ),
        *(
            "Sorry, I can't do that.",
            "Es tut mir leid, dabei kann ich nicht helfen.",
            "Lo siento, pero no puedo ayudar.",
        ),
        *("Désolé, je ne peux pas vous aider.", "Mi dispiace, ma non posso aiutarti."),
    ],
)
def test_refusal_in_plain_words_is_no_answer(answer: str) -> None:
    assert is_refusal(answer)
    assert find_doubt(NOTHING_STATED, TEXT, answer=answer) is Doubt.REFUSED


@pytest.mark.parametrize(
    "answer",
    [
        *(
            "We cannot deliver before 5 May.",
            "I'm sorry, I cannot find it in the document.",
            "The supplier can't help.",
        ),
        *("Unfortunately the document does not say.", "not stated", "", "The help desk cannot assist on Sundays."),
        "This request violates our purchasing policy: two signatures are missing.",
        "Your request goes against our policy",
        "I am unable to proceed with your offer.",
        "I will not continue with this company.",
        "I can't comply with that clause.",
        "I cannot process this request.",
    ],
)
def test_answer_that_speaks_of_what_can_not_be_done_is_no_refusal(answer: str) -> None:
    assert not is_refusal(answer)


def test_value_needs_a_look_where_no_answer_was_found_that_it_could_follow_from() -> None:
    for value_type, written in ((Bool(), "no"), (RISK, "low"), (EUR, "30")):
        value = value_of(written, value_type)
        assert find_doubt(value, value_type, answer="30, low, no", has_answer=False) is Doubt.ANSWER
    document = value_of('{"sum": 30, "day": "2024-03-05"}', DEAL)
    assert find_doubt(document, DEAL, answer="", has_answer=False, notes="30 on 5 March 2024") is None
