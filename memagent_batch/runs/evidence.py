"""The table `evidence`: spans of a document's text, which is fetched again by its place."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from memagent_batch.config import InputConfig
from memagent_batch.domain.closing.values import ValueStatus
from memagent_batch.domain.readings import Status
from memagent_batch.files.location import Location
from memagent_batch.inputs.texts import fetch_texts
from memagent_batch.log.schemas import SpanRow
from memagent_batch.reading.alignment import Alignment, align, answer_strings
from memagent_batch.runs.schemas import AnswerRow, EvidenceRow


class How(StrEnum):
    """How a span was found."""

    CHOSEN = "chosen"
    """A sentence that the model pointed at by its number."""
    ALIGNED = "aligned"
    """A string of the answer, looked for in the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A reading that has a row of `answers`."""

    row: int
    """Row of its document in the part."""
    answer: AnswerRow
    """Its row."""
    sentences: Sequence[SpanRow]
    """The sentences that its answer rests on, the best first."""

    @property
    def has_spans(self) -> bool:
        """Whether something is to be looked up in the text."""
        return bool(self.sentences) or self.is_aligned

    @property
    def is_aligned(self) -> bool:
        """Whether the strings of the answer are looked for: not where it says that nothing is stated."""
        answer = self.answer
        is_stated = answer["value_status"] != ValueStatus.NOT_STATED
        return answer["status"] == Status.OK and answer["answer"] is not None and is_stated


def evidence_of_part(
    part: pa.Table, answered: Sequence[Answered], *, documents: Location, settings: InputConfig
) -> tuple[list[EvidenceRow], bool]:
    """The rows of a part of the plan, and whether all texts were there. One text is held at a time.

    Without its text a chosen sentence keeps its place alone, and nothing is aligned.

    Args:
        part: A table of `Plan.parts`.
        answered: Its readings, in the order of their rows.
        documents: The documents, as they were indexed.
        settings: Where texts stand in them.
    """
    of_row: dict[int, list[Answered]] = {}
    for each in answered:
        if each.has_spans:
            of_row.setdefault(each.row, []).append(each)
    rows = sorted(of_row)
    found: dict[int, list[EvidenceRow]] = {}
    is_whole = True
    if rows:
        for fetched in fetch_texts(part.take(pa.array(rows, pa.int64())), documents=documents, settings=settings):
            row = rows[fetched.row]
            is_whole = is_whole and fetched.text is not None
            found[row] = [line for each in of_row[row] for line in evidence_rows(each, fetched.text)]
    return [line for row in rows for line in found[row]], is_whole


def evidence_rows(answered: Answered, text: str | None) -> Iterator[EvidenceRow]:
    """The rows of one reading: the sentences that were chosen, then the strings of the answer."""
    for rank, span in enumerate(answered.sentences, start=1):
        start, end = span["char_start"], span["char_end"]
        yield {
            **_shared(answered.answer, how=How.CHOSEN, rank=rank),
            "char_start": start,
            "char_end": end,
            "text": None if text is None else text[start:end],
            "chunk_index": span["chunk_index"],
            "alignment": Alignment.EXACT.value,
            "quote": None,
        }
    if text is None or not answered.is_aligned:
        return
    near = [(span["char_start"], span["char_end"]) for span in answered.sentences]
    for rank, aligned in enumerate(align(answer_strings(answered.answer["answer"] or ""), text, near=near), start=1):
        is_there = aligned.alignment is not Alignment.NONE
        yield {
            **_shared(answered.answer, how=How.ALIGNED, rank=rank),
            "char_start": aligned.char_start,
            "char_end": aligned.char_end,
            "text": text[aligned.char_start : aligned.char_end] if is_there else None,
            "chunk_index": None,
            "alignment": aligned.alignment.value,
            "quote": aligned.string,
        }


def _shared(answer: AnswerRow, *, how: How, rank: int) -> EvidenceRow:
    """A row without its span."""
    return {
        "run_id": answer["run_id"],
        "document_id": answer["document_id"],
        "question_id": answer["question_id"],
        "sample": answer["sample"],
        "how": how.value,
        "rank": rank,
        "char_start": None,
        "char_end": None,
        "text": None,
        "chunk_index": None,
        "locator": None,
        "alignment": Alignment.NONE.value,
        "quote": None,
        "document_hash": answer["document_hash"] or "",
        "question_hash": answer["question_hash"],
        "reader_fingerprint": answer["reader_fingerprint"],
    }
