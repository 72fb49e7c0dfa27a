"""`evaluation.json`: which suite was read by which variants, and where their runs and scores lie."""

from dataclasses import asdict, dataclass

import pyarrow as pa

from memagent_batch.errors import OutputError
from memagent_batch.evaluation.suite import SCORES
from memagent_batch.store.claims import read_owner_record
from memagent_batch.store.errors import table_errors
from memagent_batch.store.json_files import write_json
from memagent_batch.store.location import Location
from memagent_batch.store.parquet import read_parquet

EVALUATION_FILE = "evaluation.json"
EVALUATION_FORMAT = "memagent-evaluation/2"
"""Changes with every change of layout that an older version can't read."""
VARIANT_RUNS_FOLDER = "runs"
SCORES_FOLDER = "scores"
REPORT_FILE = "report.md"
REPEAT_REMEDY = "run `evaluate run` again with this variant; finished readings are not read again"
"""What brings back scores that are lost or broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRecord:
    """A variant that has been read and scored."""

    name: str
    run: str
    scores: str
    model: str
    policy: str
    seconds: float
    """Wall clock of its run, seconds; of all attempts that came to an end."""
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What an evaluation's output says of itself."""

    suite: str
    """Name of the suite, or of the question list and its documents, without credentials."""
    variants: tuple[VariantRecord, ...]
    """Variants that have been read, in the order in which they were first read."""

    def of(self, name: str) -> VariantRecord | None:
        """The record of a variant."""
        return next((variant for variant in self.variants if variant.name == name), None)

    def with_variant(self, record: VariantRecord) -> "Evaluation":
        """This one with a variant added, or in place of the one of the same name."""
        variants = {variant.name: variant for variant in self.variants} | {record.name: record}
        return Evaluation(suite=self.suite, variants=tuple(variants.values()))


def read_evaluation(output: Location) -> Evaluation | None:
    """What lies at the location; None where nothing does.

    Raises:
        OutputError: it holds something else, or the evaluation of another version.
    """
    value = read_owner_record(output, EVALUATION_FILE, layout=EVALUATION_FORMAT)
    if value is None:
        return None
    try:
        return Evaluation(suite=value["suite"], variants=tuple(VariantRecord(**each) for each in value["variants"]))
    except (KeyError, TypeError) as error:
        raise OutputError(
            f"output: {output.uri}/{EVALUATION_FILE} is not whole ({error}); restore it, or run the evaluation into "
            "another folder"
        ) from error


def claim_evaluation(output: Location, *, suite: str) -> Evaluation:
    """The evaluation of the suite of this name at the location: the one that is there, or a new one without variants.

    Raises:
        OutputError: the place holds something else, or the evaluation of another suite.
    """
    there = read_evaluation(output)
    if there is not None and there.suite != suite and (output / VARIANT_RUNS_FOLDER).files():
        raise OutputError(
            f"output: {output.uri} belongs to an evaluation over the suite {there.suite}, not {suite}; choose another "
            "output"
        )
    if there is not None and there.suite == suite:
        return there
    evaluation = Evaluation(suite=suite, variants=())
    write_evaluation(output, evaluation)
    return evaluation


def write_evaluation(output: Location, evaluation: Evaluation) -> None:
    """Writes `evaluation.json`, over one that is there."""
    write_json(output / EVALUATION_FILE, {"format": EVALUATION_FORMAT, **asdict(evaluation)})


def read_scores(output: Location, evaluation: Evaluation) -> pa.Table:
    """The scores of all variants, a table of `SCORES`.

    Raises:
        OutputError: a variant's scores can't be read; names the file.
    """
    tables = []
    for place in (output / variant.scores for variant in evaluation.variants):
        with table_errors(place.uri, remedy=REPEAT_REMEDY):
            tables.append(read_parquet(place).select(SCORES.names).cast(SCORES))
    return pa.concat_tables(tables)
