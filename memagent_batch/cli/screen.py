"""Texts for a terminal: the end of `memagent answer`, and lines cut to a width."""

import shlex
from collections.abc import Iterator, Sequence
from itertools import islice

from memagent_batch.apps.pages.document_page import shown_evidence
from memagent_batch.apps.pages.readings import RunReading, shown_value, stream_readings
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.index import Row
from memagent_batch.loop.texts.shares import quantity
from memagent_batch.masking import printable
from memagent_batch.run.evidence import How
from memagent_batch.run.history import open_run
from memagent_batch.run.manifest import Manifest
from memagent_batch.run.tables import ANSWERS_TABLE, MEMORIES_TABLE
from memagent_batch.types import Status

SHOWN_ANSWERS = 3
SEARCHED_ANSWERS = 50
"""Of so many, answers of this run are shown first, then those whose sentence was found, one of each document."""


def cut(text: str, width: int) -> str:
    """The text on one line, without control characters, cut at a width in characters."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return shown if len(shown) <= width else f"{shown[: width - 1]}…"


def ending(output: Location, manifest: Manifest, *, num_columns: int) -> str:
    """Counts, sample answers, places and commands of a finished run, for a screen of so many columns."""
    counts, folder = manifest["counts"], str(output).rstrip("/")
    parts = [f"{counts[name]:,} {name.replace('_', ' ')}" for name in ("ok", "failed", "not_read") if counts.get(name)]
    cost = f"; spent {manifest['cost']:,.2f}" if "cost" in manifest else ""
    kept = islice(stream_readings(open_run(output, manifest["run_id"])), SEARCHED_ANSWERS)
    found = sorted(
        kept, key=lambda each: (each.answer["read_run_id"] != manifest["run_id"], _is_without_sentence(each))
    )
    first_of_document = {reading.document_id: reading for reading in reversed(found)}
    readings = sorted(found, key=lambda reading: reading is not first_of_document[reading.document_id])[:SHOWN_ANSWERS]
    more = f"  {len(readings)} of {counts['asked']:,}; all: memagent page {shlex.quote(folder)}"
    rows = {ANSWERS_TABLE: counts["answers_rows"], MEMORIES_TABLE: counts["memories_rows"]}
    places = [f"  {name:<9} {folder}/{name}/   {quantity(num, 'row')}" for name, num in rows.items()]
    places += [f"  {name:<9} {folder}/{name}/" for name in manifest["table_versions"] if name not in rows]
    return "\n".join(
        [
            f"{quantity(counts['asked'], 'reading')}: {', '.join(parts)}; {manifest['seconds']:,.0f} s{cost}",
            "",
            *_sample_lines(readings, num_columns=num_columns),
            *([more] if len(readings) < counts["asked"] else []),
            "",
            *places,
            "  these are Delta tables, which Spark, DuckDB, Polars and others read",
            "",
            "next:",
            *_next_commands(folder, manifest, readings),
        ]
    )


def evidence_text(row: Row) -> str:
    """A row of `evidence`: the sentence, and where it stands."""
    if row["char_start"] is None:
        return f"{row['quote']} [nowhere in the document]"
    how = "" if row["how"] == How.CHOSEN else f"; words of the answer, {row['alignment']}"
    chunk = "" if row["chunk_index"] is None else f", chunk {row['chunk_index']}"
    locator = "" if row["locator"] is None else f", {row['locator']}"
    text = "(the text could not be fetched)" if row["text"] is None else row["text"]
    return f"{text} [characters {row['char_start']:,} to {row['char_end']:,}{chunk}{locator}{how}]"


def _next_commands(folder: str, manifest: Manifest, readings: Sequence[RunReading]) -> Iterator[str]:
    place = shlex.quote(folder)
    yield f"  memagent page {place}   # all answers, each sentence marked in its text"
    for reading in readings[:1]:
        yield f"  memagent show {place} {shlex.quote(printable(reading.document_id))}   # answers and sentences"
    if not manifest["settings"]["follow_ups"]["evidence"]:
        yield "  the same command with --follow-ups.evidence   # adds the sentences; reads no document again"
    if any(_is_without_answer(reading.answer) for reading in readings):
        yield "  the same command with --extraction raw   # takes whole responses as answers; reads no document again"
    if manifest["counts"]["failed"] > manifest["unread"]["num_unread_failed"]:
        yield "  the same command with --retry-failed   # reads again what failed"
    yield f"  memagent status {place}"
    if manifest["changes"]["since"]:
        yield f"  memagent diff {place}   # what changed since the run before"
    yield f'  python: memagent_batch.table("{folder}", "{ANSWERS_TABLE}")   # as pyarrow.Table'


def _is_without_sentence(reading: RunReading) -> bool:
    return not any(row["char_start"] is not None for row in shown_evidence(reading)[:1])


def _sample_lines(readings: Sequence[RunReading], *, num_columns: int) -> Iterator[str]:
    """Answers below their question, and the first sentence of each with its place, each cut to a line of the screen."""
    asked = None
    for reading in readings:
        answer = reading.answer
        if answer["question"] != asked:
            asked = answer["question"]
            yield cut(f"  {asked}", num_columns)
        yield cut(f"    {cut(reading.document_id, num_columns // 3)}  {_shown_answer(answer)}", num_columns)
        for row in shown_evidence(reading)[:1]:
            place = row["locator"] or f"characters {row['char_start'] or 0:,} to {row['char_end'] or 0:,}"
            place = f"   [{place if row['char_start'] is not None else 'nowhere in the document'}]"
            sentence = cut(row["text"] or row["quote"] or "", max(20, num_columns - len(place) - 8))
            yield cut(f'      "{sentence}"{place}', num_columns)


def _shown_answer(row: Row) -> str:
    if row["status"] != Status.OK:
        return f"{row['status']}: {row['error_message']}"
    return f"no answer; the response: {row['response'] or ''}" if _is_without_answer(row) else shown_value(row)


def _is_without_answer(row: Row) -> bool:
    """Whether the response marks no answer, as one of a model that was not taught to."""
    return row["status"] == Status.OK and row["answer"] is None
