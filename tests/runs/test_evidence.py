"""The table of evidence: spans are those of the text as hashed, whatever its line ends and scripts."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from memagent_batch.documents.texts import fetch_texts

from memagent_batch.config.sources import InputConfig
from memagent_batch.documents.document_index import INDEX_SCHEMA
from memagent_batch.domain.addresses import text_hash
from memagent_batch.domain.texts.sentences import split_sentences
from memagent_batch.runs import evidence
from memagent_batch.runs.evidence import AnsweredReading, PartSpans, spans_of_part
from memagent_batch.runs.projection import NOT_CLOSED
from memagent_batch.runs.tables import AnswerRow
from memagent_batch.store.location import Location
from tests.documents.lake.forms import indexed

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


def part_of(folder: Path, texts: dict[str, str]) -> tuple[pa.Table, Location]:
    pq.write_table(pa.table({"document_id": list(texts), "text": list(texts.values())}), folder / "d.parquet")
    documents = Location(uri=str(folder / "d.parquet"))
    rows = [
        {
            "document_id": name,
            "document_hash": text_hash(TEXTS[name]),
            "path": documents.path,
            "format": "parquet",
            "start": 0,
            "stop": row,
            "num_bytes": len(texts[name].encode()),
        }
        for row, name in enumerate(texts)
    ]
    return pa.Table.from_pylist(rows, schema=INDEX_SCHEMA), documents


def rows_of(folder: Path, answered: list[AnsweredReading], *, texts: dict[str, str] = TEXTS) -> tuple[list[Any], bool]:
    part, documents = part_of(folder, texts)
    spans = spans_of_part(part, answered, documents=documents, settings=InputConfig(), has_evidence=True)
    return spans.evidence or [], spans.is_whole


def test_chosen_sentences_have_their_text_character_for_character(tmp_path: Path) -> None:
    answered = []
    for row, (name, text) in enumerate(TEXTS.items()):
        sentences = split_sentences(text)
        spans: Any = [
            {"char_start": start, "char_end": end, "chunk_index": place}
            for place, (start, end) in reversed(list(enumerate(map(sentences.span, range(len(sentences))))))
        ]
        answered.append(AnsweredReading(row=row, answer=answer_of(name, None), sentences=spans))
    rows, is_whole = rows_of(tmp_path, answered)
    assert is_whole
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
    (found, *_), _ = rows_of(tmp_path, [AnsweredReading(row=row, answer=answer_of(document_id, answer), sentences=())])
    assert (found["how"], found["quote"], found["alignment"], found["text"]) == ("aligned", answer, alignment, text)
    if text is not None:
        assert TEXTS[document_id][found["char_start"] : found["char_end"]] == text


def test_answer_that_says_not_stated_is_not_looked_for(tmp_path: Path) -> None:
    answer = answer_of("crlf", "not stated", value_status="not_stated")
    assert rows_of(tmp_path, [AnsweredReading(row=0, answer=answer, sentences=())]) == ([], True)


def test_text_that_changed_since_leaves_the_place_without_its_text(tmp_path: Path) -> None:
    span: Any = {"char_start": 6, "char_end": 20, "chunk_index": 0}
    answered = [AnsweredReading(row=0, answer=answer_of("crlf", "Ann signed it."), sentences=[span])]
    (row,), is_whole = rows_of(tmp_path, answered, texts={**TEXTS, "crlf": "Other."})
    assert (row["how"], row["char_start"], row["char_end"], row["text"]) == ("chosen", 6, 20, None)
    assert not is_whole


PAGES = ["It rained.", "", "Ann signed 😀.\r\nBob did not.", "The end."]
PAGED = InputConfig(order_columns=("page",), locator="{file}, page {page}")
WHOLE = "\n\n".join(PAGES)


def spans_of_pages(
    folder: Path, *, sentences: list[str], turns: list[tuple[int, int] | None], has_evidence: bool = True
) -> PartSpans:
    """What the pages say of spans of their document; one reading of it has evidence and turns."""
    rows = [{"document_id": "case", "file": "a.pdf", "page": n, "text": page} for n, page in enumerate(PAGES, start=1)]
    place = Location(uri=str(folder / "pages.parquet"))
    pq.write_table(pa.Table.from_pylist(rows), place.path)
    part = indexed(place, settings=PAGED)
    places = [WHOLE.index(sentence) for sentence in sentences]
    spans: Any = [
        {"char_start": start, "char_end": start + len(sentence), "chunk_index": 0}
        for start, sentence in zip(places, sentences, strict=True)
    ]
    shown: Any = [dict(zip(("char_start", "char_end"), span or (None, None), strict=True)) for span in turns]
    answer: Any = {**answer_of("crlf", "Bob did not."), "document_id": "case"}
    answered = AnsweredReading(row=0, answer=answer, sentences=spans, turns=shown)
    if folder.joinpath("gone").exists():
        pq.write_table(pa.Table.from_pylist(rows[1:]), place.path)
    return spans_of_part(part, [answered], documents=place, settings=PAGED, has_evidence=has_evidence)


def test_spans_are_led_back_to_the_rows_that_they_lie_in(tmp_path: Path) -> None:
    end, third = len(WHOLE), WHOLE.index("Ann")
    spans = spans_of_pages(
        tmp_path,
        sentences=["Ann signed 😀.", "It rained."],
        turns=[(0, third), (0, third + 1), (third, end), (end - 1, end), None],
    )
    found = [(row["how"], row["text"], row["locator"]) for row in spans.evidence or ()]
    assert found == [
        ("chosen", "Ann signed 😀.", "a.pdf, page 3"),
        ("chosen", "It rained.", "a.pdf, page 1"),
        ("aligned", "Bob did not.", "a.pdf, page 3"),
    ]
    assert [turn["locator"] for turn in spans.memories] == [
        "a.pdf, page 1",
        "a.pdf, page 1 to a.pdf, page 3",
        "a.pdf, page 3 to a.pdf, page 4",
        "a.pdf, page 4",
        None,
    ]
    assert spans.is_whole


def test_turns_have_locators_in_a_run_without_evidence_and_none_where_a_page_is_gone(tmp_path: Path) -> None:
    spans = spans_of_pages(tmp_path, sentences=[], turns=[(0, 3)], has_evidence=False)
    assert (spans.evidence, [turn["locator"] for turn in spans.memories]) == (None, ["a.pdf, page 1"])
    (tmp_path / "gone").touch()
    lost = spans_of_pages(tmp_path, sentences=["It rained."], turns=[(0, 3)])
    assert ([turn["locator"] for turn in lost.memories], lost.is_whole) == ([None], False)
    assert [(row["char_start"], row["text"], row["locator"]) for row in lost.evidence or ()] == [(0, None, None)]


def test_documents_whose_rows_lie_mixed_are_fetched_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a", "b", "c"]
    rows = [
        {"document_id": name, "file": "f", "page": page, "text": f"{name} {page}. " * 9}
        for page in range(3)
        for name in names
    ]
    place = Location(uri=str(tmp_path / "pages.parquet"))
    pq.write_table(pa.Table.from_pylist(rows), place.path)
    part = indexed(place, settings=PAGED)
    turn: Any = {"char_start": 0, "char_end": 1}
    answer: Any = {"status": "failed", "answer": None, "value_status": None}
    answered = [AnsweredReading(row=row, answer=answer, sentences=(), turns=[turn]) for row in range(3)]
    fetched: list[int] = []

    def fetch(table: pa.Table, **settings: Any) -> Any:
        fetched.append(table.num_rows)
        return fetch_texts(table, **settings)

    monkeypatch.setattr(evidence, "fetch_texts", fetch)
    for most, batches in ((1, [1, 1, 1]), (1 << 20, [3])):
        monkeypatch.setattr(evidence, "JOINED_BYTES", most)
        spans = spans_of_part(part, answered, documents=place, settings=PAGED, has_evidence=False)
        assert [row["locator"] for row in spans.memories] == ["f, page 0"] * 3
        assert fetched == batches
        fetched.clear()
