"""What a sample is drawn from, and the draw: the readings of a question by permanent random numbers."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import Annotated, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.apps.review.labels import Purpose
from memagent_batch.data.documents.document_index import SOURCE_UNREAD
from memagent_batch.data.documents.where import Condition, matching_rows
from memagent_batch.data.store.columns import Column, arrow_schema
from memagent_batch.data.store.database import BATCH_ROWS, run_query
from memagent_batch.data.store.errors import output_errors
from memagent_batch.data.store.location import Location
from memagent_batch.errors import SettingsError
from memagent_batch.run.history import PastRun, find_run
from memagent_batch.run.tables import ANSWERS, ANSWERS_TABLE, EVIDENCE_TABLE, DocumentId, QuestionText

FLAGGED_PARTS = 5
"""A flagged stratum gets one label in so many: what was not flagged decides how wide the interval of recall is."""
UNANSWERED_PARTS = 10
"""Most labels of readings without an answer: one in so many."""
FEWEST = 5
"""Labels that each stratum gets at least, where it has as many readings."""


class Stratum(StrEnum):
    """Strata by the scan's own output."""

    FLAGGED = "flagged"
    """The answer fulfils the condition."""
    NOT_FLAGGED = "not_flagged"
    """It does not."""
    NO_VALUE = "invalid"
    """The reading ended, without an answer or value that the condition can be put to."""
    FAILED = "failed"
    """The reading failed, or was not read."""


UNANSWERED = frozenset({Stratum.NO_VALUE.value, Stratum.FAILED.value})
"""Strata whose readings have no answer."""


def allocate(num_labels: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """How many readings of each stratum are drawn if `num_labels` are wanted in all; never more than it has.

    What was not flagged gets what the others leave; if it is drawn whole, the others get the rest, in their order.
    """
    drawn = {name: min(size, FEWEST) for name, size in sizes.items()}
    wanted = {Stratum.FLAGGED.value: num_labels // FLAGGED_PARTS}
    unanswered = sum(sizes.get(name, 0) for name in UNANSWERED)
    for name in UNANSWERED & sizes.keys():
        in_proportion = num_labels * sizes[name] // max(1, sum(sizes.values()))
        wanted[name] = min(in_proportion, num_labels // UNANSWERED_PARTS * sizes[name] // max(1, unanswered))
    for name, number in wanted.items():
        if name in drawn:
            drawn[name] = min(sizes[name], max(drawn[name], number))
    for name in (Stratum.NOT_FLAGGED, Stratum.FLAGGED, Stratum.NO_VALUE, Stratum.FAILED):
        if name in sizes:
            drawn[name] += min(sizes[name] - drawn[name], max(0, num_labels - sum(drawn.values())))
    return drawn


def parse_labels(text: str, sizes: Mapping[str, int]) -> dict[str, int]:
    """The labels of each stratum: `750`, or `flagged=150,not_flagged=600`.

    Raises:
        SettingsError: it is neither, or names a stratum that is not there.
    """
    if text.isascii() and text.isdigit() and int(text):
        return allocate(int(text), sizes)
    drawn = {name: min(size, FEWEST) for name, size in sizes.items()}
    for part in text.split(","):
        name, _, number = part.strip().rpartition("=")
        if name not in sizes or not number.isascii() or not number.isdigit():
            raise SettingsError(
                f"--labels: {part.strip()!r} is not a number of labels; write 750, or a number for each stratum as in "
                f"{','.join(f'{name}=100' for name in sizes)}"
            )
        drawn[name] = min(int(number), sizes[name])
    return drawn


DRAWN_COLUMNS = ("document_id", "document_hash", "question_hash", "question", "confidence", "source", SOURCE_UNREAD)
STRATUM_COLUMNS = ("status", "value_status", SOURCE_UNREAD)
"""Columns that strata follow from, besides those of the condition."""
_STRATA = """
select case
    when status <> 'ok' then '{FAILED}'
    when value_status = 'invalid' or (not has_value and (
        {SOURCE_UNREAD} is not null or coalesce(value_status, '') not in ('not_stated', 'not_read'))) then '{NO_VALUE}'
    when is_flagged then '{FLAGGED}'
    else '{NOT_FLAGGED}' end as stratum
from answers
"""
_DRAW = """
with copies as (
    select *, row_number() over (partition by document_hash, question_hash order by document_id) - 1 as copy
    from readings),
numbered as (
    select *, sha256(concat_ws('|', $seed, document_hash, question_hash, nullif(copy, 0))) as number from copies),
ranked as (
    select *, row_number() over (partition by stratum order by number, document_id) - 1 as rank from numbered)
select ranked.*, rank < ceil($second_share * size) as is_second
from ranked join sizes using (stratum) where rank < size
order by sha256(concat_ws('|', $seed, 'order', number)), number
"""


class SampleRow(TypedDict):
    """One row for each reading that people label, in the order in which they read them."""

    document_id: DocumentId
    document_hash: Annotated[str, Column("SHA-256 of the document's text in UTF-8, hex")]
    question_hash: Annotated[str, Column("hash of the question, as in `answers`")]
    question: QuestionText
    stratum: Annotated[str, Column("flagged, not_flagged, invalid or failed")]
    copy: Annotated[int, pa.int32(), Column("place among the documents of the same text, by document_id, from 0")]
    number: Annotated[str, Column("permanent random number: SHA-256 of seed, document hash, question hash, hex")]
    rank: Annotated[int, pa.int32(), Column("place in its stratum by this number, from 0")]
    is_second: Annotated[bool, Column("whether a second person reads it too")]
    confidence: Annotated[float | None, Column("confidence of the answer, as in `answers`")]
    source: Annotated[str | None, Column("source of the document, or the first of several")]
    source_unread: Annotated[str | None, Column("what of it was not read, as in `answers`")]


REVIEW_SAMPLE = arrow_schema(SampleRow)


def seed_text(seed: int, purpose: Purpose) -> str:
    """What goes into the numbers: a sample to develop prompts with is another one than that which validates them."""
    return str(seed) if purpose is Purpose.VALIDATE else f"{seed}/{purpose.value}"


def draw(readings: pa.Table, sizes: Mapping[str, int], *, seed: str, second_share: float) -> pa.Table:
    """The sample as `REVIEW_SAMPLE`: of each stratum the readings with the smallest numbers, which the seed makes.

    People read it in an order that is as random as the draw, and blind to strata; a second person reads a share of each
    stratum's sample.
    """
    wanted = pa.table({"stratum": pa.array(sizes.keys(), pa.string()), "size": pa.array(sizes.values(), pa.int64())})
    drawn = run_query(_DRAW, {"readings": readings, "sizes": wanted}, seed=seed, second_share=second_share)
    return drawn.select(REVIEW_SAMPLE.names).cast(REVIEW_SAMPLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """What a sample is drawn from."""

    readings: pa.Table
    """Readings of documents whose text could be read: `DRAWN_COLUMNS` and `stratum`."""
    question: str
    """Text of the question, or of the first of several."""
    num_unreadable: int
    """Failed readings of documents whose text nobody can read: they can't be labelled."""

    @property
    def sizes(self) -> dict[str, int]:
        """Readings of each stratum."""
        counted = pc.value_counts(self.readings["stratum"])
        return dict(sorted(zip(*(each.to_pylist() for each in counted.flatten()), strict=True)))

    @property
    def losses(self) -> dict[str, int]:
        """Readings of each stratum whose source was not read to the end."""
        strata = self.readings.filter(pc.field(SOURCE_UNREAD).is_valid())["stratum"]
        return {name: pc.sum(pc.equal(strata, name)).as_py() or 0 for name in self.sizes}


def find_runs(outputs: Sequence[Location]) -> list[PastRun]:
    """The last finished runs of these outputs, which are reviewed as one; the first output has reviews and labels.

    Raises:
        OutputError: no run has finished in one of them.
    """
    runs = []
    for output in outputs:
        with output_errors(output.uri):
            runs.append(find_run(output))
    return runs


def rows_of_question(
    runs: Sequence[PastRun], table: str, *, question_id: str, columns: Collection[str]
) -> Iterator[pa.Table]:
    """The rows of a table for a question, sample 0, batch by batch.

    Raises:
        OutputError: a file is gone or can't be read.
    """
    is_wanted = (pc.field("question_id") == question_id) & (pc.field("sample") == 0)
    for run in runs:
        dataset = run.evidence() if table == EVIDENCE_TABLE else run.dataset(table)
        names = [name for name in dataset.schema.names if name in {"question_id", "sample", *columns}]
        for batch in dataset.to_batches(columns=names, filter=is_wanted, batch_size=BATCH_ROWS):
            if batch.num_rows:
                yield pa.Table.from_batches([batch])


def read_population(runs: Sequence[PastRun], *, question_id: str, flagged: Condition) -> Population:
    """The readings of a question, sample 0 of each, in the order of their document ids.

    Raises:
        OutputError: a table file is gone or can't be read.
        SettingsError: the run has no such question, or no such column.
    """
    tables: list[pa.Table] = []
    question, num_unreadable = "", 0
    columns = {*DRAWN_COLUMNS, *STRATUM_COLUMNS, *flagged.words()}
    for answers in rows_of_question(runs, ANSWERS_TABLE, question_id=question_id, columns=columns):
        question = question or answers["question"][0].as_py()
        readable = answers.filter(pc.is_valid(answers["document_hash"]))
        num_unreadable += answers.num_rows - readable.num_rows
        columns_of = {name: readable[name] for name in DRAWN_COLUMNS}
        tables.append(pa.table({**columns_of, "stratum": strata_of(readable, flagged=flagged)}))
    if not question:
        run = runs[0]
        asked = sorted(pc.unique(run.questions["question_id"]).to_pylist())[:10]
        raise SettingsError(
            f"--question: the run at {run.output} asked no question {question_id!r}; it asked "
            f"{', '.join(map(repr, asked)) or 'nothing'}"
        )
    population = Population(readings=pa.concat_tables(tables), question=question, num_unreadable=num_unreadable)
    if Stratum.NO_VALUE in population.sizes and population.sizes.keys() <= UNANSWERED:
        raise SettingsError(
            f"--flagged: no reading of question {question_id!r} has a value in the columns of {flagged.text!r}; flag "
            "a question without a type by its answer: answer ~ 'yes'"
        )
    return population


def strata_of(answers: pa.Table, *, flagged: Condition) -> pa.Array:
    """The stratum of each row of a table of answers."""
    is_flagged = np.zeros(answers.num_rows, np.bool_)
    is_flagged[matching_rows(answers, flagged, there=ANSWERS.names)] = True
    columns = {SOURCE_UNREAD: pa.nulls(answers.num_rows, pa.string())}
    columns |= {name: answers[name] for name in STRATUM_COLUMNS if name in answers.schema.names}
    asked = flagged.columns_among(answers.schema.names)
    columns["has_value"] = reduce(pc.or_, (pc.is_valid(answers[name]) for name in asked))
    columns["is_flagged"] = pa.array(is_flagged)
    query = _STRATA.format(**Stratum.__members__, SOURCE_UNREAD=SOURCE_UNREAD)
    return run_query(query, {"answers": pa.table(columns)})["stratum"]
