"""What a sample is drawn from, and the draw: the readings of a question by permanent random numbers."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.documents.where import Condition, canonical, columns_of, matching_rows
from memagent_batch.domain.addresses import permanent_number
from memagent_batch.domain.follow_ups.values import ValueStatus
from memagent_batch.domain.readings import Status
from memagent_batch.errors import SettingsError
from memagent_batch.review.labels import NONE_OF_THESE, UNCLEAR, Purpose
from memagent_batch.review.strata import UNANSWERED, VALUE_PREFIX, Stratum
from memagent_batch.runs.manifest import Manifest
from memagent_batch.runs.tables import ANSWERS_FOLDER, read_table_columns
from memagent_batch.store.location import Location

MAX_VALUES = 50
"""Most values of a review by values: each is a stratum that needs labels of its own."""
UNIT_COLUMNS = ("document_id", "document_hash", "question_id", "question_hash", "question", "sample", "status")
TYPED_COLUMNS = ("answer", "value_status", "confidence")
"""Columns that strata may follow from, where the run has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A reading of the population, as the draw needs it."""

    document_id: str
    document_hash: str
    question_hash: str
    stratum: str
    question: str = ""
    copy: int = 0
    """Place among the documents of the same text, by document_id, from 0: each is drawn on its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnUnit:
    """A reading of the sample."""

    unit: Unit
    number: str
    """Its permanent random number, 64 hex digits."""
    rank: int
    """Place in its stratum, by number, from 0."""
    is_second: bool
    """Whether a second person reads it too, so that their agreement can be measured."""


def number_of(unit: Unit, *, seed: str) -> str:
    """Its permanent random number, of document hash and question hash; of a further copy also of its place."""
    return permanent_number(seed, unit.document_hash, unit.question_hash, *([str(unit.copy)] if unit.copy else []))


def seed_text(seed: int, purpose: Purpose) -> str:
    """What goes into the numbers: a sample to develop prompts with is another one than that which validates them."""
    return str(seed) if purpose is Purpose.VALIDATE else f"{seed}/{purpose.value}"


def draw(units: Sequence[Unit], sizes: Mapping[str, int], *, seed: str, second_share: float) -> list[DrawnUnit]:
    """The sample: of each stratum the readings with the smallest numbers.

    Args:
        units: The population.
        sizes: Readings to draw of each stratum.
        seed: As `seed_text` writes it.
        second_share: Share of each stratum's sample that a second person reads, 0 to 1.
    """
    numbered: dict[str, list[tuple[str, Unit]]] = defaultdict(list)
    for unit in units:
        numbered[unit.stratum].append((number_of(unit, seed=seed), unit))
    drawn = []
    for stratum in sorted(numbered):
        size = sizes.get(stratum, 0)
        num_second = -int(-second_share * size // 1)
        ordered = sorted(numbered[stratum], key=lambda pair: (pair[0], pair[1].document_id))[:size]
        for rank, (number, unit) in enumerate(ordered):
            drawn.append(DrawnUnit(unit=unit, number=number, rank=rank, is_second=rank < num_second))
    return drawn


def shuffled(drawn: Sequence[DrawnUnit], *, seed: str) -> list[DrawnUnit]:
    """The sample in the order in which people read it: as random as the draw, and blind to strata."""
    return sorted(drawn, key=lambda each: (sha256(f"{seed}|order|{each.number}".encode()).hexdigest(), each.number))


@dataclass(frozen=True, slots=True, kw_only=True)
class StratumRule:
    """How the scan's output divides a population: by a condition, or by the values of a column."""

    flagged: Condition | None = None
    """What is flagged; None for a review by values."""
    text: str | None = None
    by: str | None = None
    """Column whose values are the strata; None for a review by a condition."""
    unsure_below: float | None = None
    """Confidence below which what is not flagged is unsure; None for no such stratum."""

    @property
    def about(self) -> str:
        """What people decide by it; see `Decision`."""
        return self.by or (canonical(self.flagged) if self.flagged else "")

    @property
    def columns(self) -> Sequence[str]:
        """The columns that decide."""
        return [self.by] if self.by else sorted(columns_of(self.flagged)) if self.flagged else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """What a sample is drawn from."""

    units: Sequence[Unit]
    """Readings of documents whose text could be read."""
    question: str
    """Text of the question, or of the first of several."""
    num_unreadable: int
    """Failed readings of documents whose text nobody can read: they can't be labelled."""

    @property
    def sizes(self) -> dict[str, int]:
        """Readings of each stratum."""
        return dict(sorted(Counter(unit.stratum for unit in self.units).items()))

    @property
    def values(self) -> list[str]:
        """The values that the scan gave, in a review by values."""
        return [name.removeprefix(VALUE_PREFIX) for name in self.sizes if name.startswith(VALUE_PREFIX)]


def read_population(output: Location, manifest: Manifest, *, question_id: str, rule: StratumRule) -> Population:
    """The readings of a question, sample 0 of each, in the order of their document ids.

    Raises:
        OutputError: a table file is gone or can't be read.
        SettingsError: the run has no such question, or no such column.
    """
    units: list[Unit] = []
    question, num_unreadable, asked = "", 0, set[str]()
    for answers in answer_tables(output, manifest, columns=(*UNIT_COLUMNS, *TYPED_COLUMNS, *rule.columns)):
        asked.update(answers["question_id"].unique().to_pylist())
        answers = answers.filter((pc.field("question_id") == question_id) & (pc.field("sample") == 0))
        if not answers.num_rows:
            continue
        question = question or answers["question"][0].as_py()
        readable = answers.filter(pc.is_valid(answers["document_hash"]))
        num_unreadable += answers.num_rows - readable.num_rows
        rows = readable.select(["document_id", "document_hash", "question_hash", "question"]).to_pylist()
        units += [Unit(**row, stratum=name) for row, name in zip(rows, strata_of(readable, rule=rule), strict=True)]
    if not question:
        raise SettingsError(
            f"--question: the run at {output} asked no question {question_id!r}; it asked "
            f"{', '.join(map(repr, sorted(asked)[:10])) or 'nothing'}"
        )
    if all(unit.stratum in UNANSWERED for unit in units) and any(unit.stratum == Stratum.NO_VALUE for unit in units):
        raise SettingsError(
            f"--flagged: no reading of question {question_id!r} has a value in {', '.join(rule.columns)}; flag a "
            "question without a type by its answer: answer ~ 'yes'"
        )
    population = Population(units=_with_numbers(units), question=question, num_unreadable=num_unreadable)
    if len(population.values) > MAX_VALUES:
        raise SettingsError(
            f"--by: {rule.by} has {len(population.values)} values, more than {MAX_VALUES}; name with --flagged which "
            "of them matter"
        )
    _require_no_word_of_reviewers(population.values, by=rule.by)
    return population


def strata_of(answers: pa.Table, *, rule: StratumRule) -> list[str]:
    """The stratum of each row of a table of answers."""
    flagged = set(matching_rows(answers, rule.flagged, option="--flagged").tolist()) if rule.flagged else set()
    if rule.by and rule.by not in answers.schema.names:
        raise SettingsError(f"--by: the run's answers have no column {rule.by!r}; they have {answers.schema.names}")
    columns = {name: answers[name].to_pylist() for name in answers.schema.names}
    return [
        str(_stratum({name: values[row] for name, values in columns.items()}, is_flagged=row in flagged, rule=rule))
        for row in range(answers.num_rows)
    ]


def answer_tables(output: Location, manifest: Manifest, *, columns: Collection[str]) -> Iterator[pa.Table]:
    """The files of `answers`, one after another, with those of the columns that they have.

    Raises:
        OutputError: a file is gone or can't be read.
    """
    for name in manifest["files"].get(ANSWERS_FOLDER, []):
        yield read_table_columns(output / name, columns)


def _require_no_word_of_reviewers(values: Sequence[str], *, by: str | None) -> None:
    """Refuses values that a label could not be distinguished from: people say them of documents, not of the
    question.
    """
    taken = next((value for value in values if value.casefold() in (UNCLEAR, NONE_OF_THESE)), None)
    if taken is not None:
        raise SettingsError(
            f"--by: {by} has the value {taken!r}, and labels say {UNCLEAR!r} and {NONE_OF_THESE!r} where a person "
            f"can't say, or no value is right; review each value by itself: --flagged \"{by} = '{taken}'\""
        )


def _stratum(row: Mapping[str, Any], *, is_flagged: bool, rule: StratumRule) -> str:
    if row["status"] != Status.OK:
        return Stratum.FAILED
    status, values = row.get("value_status"), [row[name] for name in rule.columns if row[name] is not None]
    if status == ValueStatus.INVALID or (not values and status != ValueStatus.NOT_STATED):
        return Stratum.NO_VALUE
    if rule.by and values:
        return f"{VALUE_PREFIX}{values[0]}"
    if is_flagged:
        return Stratum.FLAGGED
    confidence = row.get("confidence")
    if rule.unsure_below is not None and confidence is not None and confidence < rule.unsure_below:
        return Stratum.UNSURE
    return Stratum.NOT_FLAGGED


def _with_numbers(units: list[Unit]) -> list[Unit]:
    """In the order of their ids; documents of the same text with their places among these."""
    seen: Counter[tuple[str, str]] = Counter()
    numbered = []
    for unit in sorted(units, key=lambda unit: unit.document_id):
        key = (unit.document_hash, unit.question_hash)
        numbered.append(replace(unit, copy=seen[key]) if seen[key] else unit)
        seen[key] += 1
    return numbered
