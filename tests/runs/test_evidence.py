"""The table of evidence: spans are those of the text as hashed, whatever its line ends and scripts."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents.stored import StoredDocuments
from memagent_batch.data.store.location import Location
from memagent_batch.loop.addresses import text_hash
from memagent_batch.loop.texts.sentences import split_sentences
from memagent_batch.run.evidence import AnsweredReading, PartSpans, spans_of_part
from memagent_batch.run.projection import NOT_CLOSED
from memagent_batch.run.tables import AnswerRow
from tests.documents.stored_documents import paged_row, store_documents, stored_row

TEXTS = {
    "crlf": "Old.\r\nAnn signed it.\r\n\r\nNew.",
    "astral": "😀 laughs. 𝔘𝔫𝔦 pays 5 EUR. 👩‍👩‍👧 wave.",
    "combining": "Cafe\u0301 opens. The e\u0301tage is 3.",
    "right_to_left": "هذا نص قصير. وقع علي العقد. שלום עולם.",
}


def answer_of(document_id: str, answer: str | None, **columns: Any) -> AnswerRow:
    row: dict[str, Any] = {
        "run_id": "r",
        "document_id": document_id,
        "question_id": "q",
        "sample": 0,
        "status": "ok",
        "answer": answer,
        "document_hash": text_hash(TEXTS[document_id]),
        "question_hash": "h",
        "fingerprint": "f",
        **NOT_CLOSED,
        **columns,
    }
    return row  # type: ignore[return-value]


def part_of(folder: Path, *rows: dict[str, Any]) -> tuple[pa.Table, StoredDocuments]:
    """The index of documents that are stored, and where they are."""
    store_documents(Location(uri=str(folder)), rows)
    stored = StoredDocuments(output=Location(uri=str(folder)))
    return stored.read_index(InputConfig()).taken, stored


def rows_of(folder: Path, answered: list[AnsweredReading]) -> list[Any]:
    part, documents = part_of(folder, *(stored_row(name, text) for name, text in TEXTS.items()))
    return spans_of_part(part, answered, documents=documents, has_evidence=True).evidence or []


def test_chosen_sentences_have_their_text_character_for_character(tmp_path: Path) -> None:
    answered = []
    for row, (name, text) in enumerate(TEXTS.items()):
        sentences = split_sentences(text)
        spans: Any = [
            {"char_start": start, "char_end": end, "chunk_index": place}
            for place, (start, end) in reversed(list(enumerate(map(sentences.span, range(len(sentences))))))
        ]
        answered.append(AnsweredReading(row=row, answer=answer_of(name, None), sentences=spans))
    rows = rows_of(tmp_path, answered)
    found = {name: [row["text"] for row in rows if row["document_id"] == name] for name in TEXTS}
    assert found == {
        "crlf": ["New.", "Ann signed it.", "Old."],
        "astral": ["👩‍👩‍👧 wave.", "𝔘𝔫𝔦 pays 5 EUR.", "😀 laughs."],
        "combining": ["The e\u0301tage is 3.", "Cafe\u0301 opens."],
        "right_to_left": ["שלום עולם.", "وقع علي العقد.", "هذا نص قصير."],
    }
    assert [(row["how"], row["rank"], row["chunk_index"]) for row in rows[:3]] == [
        ("chosen", 1, 2),
        ("chosen", 2, 1),
        ("chosen", 3, 0),
    ]
    assert {row["alignment"] for row in rows} == {"exact"}


@pytest.mark.parametrize(
    ("document_id", "answer", "alignment", "text"),
    [
        ("crlf", "Ann signed it.", "exact", "Ann signed it."),
        ("crlf", "ANN  SIGNED IT", "folded", "Ann signed it"),
        ("astral", "Uni pays 5 EUR", "folded", "𝔘𝔫𝔦 pays 5 EUR"),
        ("combining", "The étage is 3", "folded", "The e\u0301tage is 3"),
        ("right_to_left", "וקע", "none", None),
    ],
)
def test_strings_of_the_answer_are_looked_for_in_the_text(
    document_id: str, answer: str, alignment: str, text: str | None, tmp_path: Path
) -> None:
    row = list(TEXTS).index(document_id)
    (found, *_) = rows_of(tmp_path, [AnsweredReading(row=row, answer=answer_of(document_id, answer), sentences=())])
    assert (found["how"], found["quote"], found["alignment"], found["text"]) == ("aligned", answer, alignment, text)
    if text is not None:
        assert TEXTS[document_id][found["char_start"] : found["char_end"]] == text


def test_answer_that_says_not_stated_is_not_looked_for(tmp_path: Path) -> None:
    answer = answer_of("crlf", "not stated", value_status="not_stated")
    assert rows_of(tmp_path, [AnsweredReading(row=0, answer=answer, sentences=())]) == []


PAGES = {"page 1": "It rained.", "page 2": "", "page 3": "Ann signed 😀.\r\nBob did not.", "page 4": "The end."}
WHOLE = "\n\n".join(PAGES.values())


def spans_of_pages(
    folder: Path, *, sentences: list[str], turns: list[tuple[int, int] | None], has_evidence: bool = True
) -> PartSpans:
    """What the pages say of spans of their document; one reading of it has evidence and turns."""
    part, documents = part_of(folder, paged_row("case", PAGES))
    places = [WHOLE.index(sentence) for sentence in sentences]
    spans: Any = [
        {"char_start": start, "char_end": start + len(sentence), "chunk_index": 0}
        for start, sentence in zip(places, sentences, strict=True)
    ]
    shown: Any = [dict(zip(("char_start", "char_end"), span or (None, None), strict=True)) for span in turns]
    answer: Any = {**answer_of("crlf", "Bob did not."), "document_id": "case"}
    answered = AnsweredReading(row=0, answer=answer, sentences=spans, turns=shown)
    return spans_of_part(part, [answered], documents=documents, has_evidence=has_evidence)


def test_spans_are_led_back_to_the_rows_that_they_lie_in(tmp_path: Path) -> None:
    end, third = len(WHOLE), WHOLE.index("Ann")
    spans = spans_of_pages(
        tmp_path,
        sentences=["Ann signed 😀.", "It rained."],
        turns=[(0, third), (0, third + 1), (third, end), (end - 1, end), None],
    )
    found = [(row["how"], row["text"], row["locator"]) for row in spans.evidence or ()]
    assert found == [
        ("chosen", "Ann signed 😀.", "page 3"),
        ("chosen", "It rained.", "page 1"),
        ("aligned", "Bob did not.", "page 3"),
    ]
    assert [turn["locator"] for turn in spans.memories] == [
        "page 1",
        "page 1 to page 3",
        "page 3 to page 4",
        "page 4",
        None,
    ]


def test_turns_have_locators_in_a_run_without_evidence(tmp_path: Path) -> None:
    spans = spans_of_pages(tmp_path, sentences=[], turns=[(0, 3)], has_evidence=False)
    assert (spans.evidence, [turn["locator"] for turn in spans.memories]) == (None, ["page 1"])
