"""`evaluation.json`: which suite was read by which variants; their scores lie beside it."""

from collections.abc import Mapping
from typing import Any, TypedDict, cast

import pyarrow as pa

from memagent_batch.apps.evaluation.suite import SCORES
from memagent_batch.data.store.claims import read_owner_record
from memagent_batch.data.store.errors import table_errors
from memagent_batch.data.store.json_files import write_json
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import read_parquet
from memagent_batch.errors import OutputError

EVALUATION_FILE = "evaluation.json"
EVALUATION_FORMAT = "memagent-evaluation/3"
"""Changes with every change of layout that an older version can't read."""
VARIANT_RUNS_FOLDER = "runs"
SCORES_FOLDER = "scores"
REPORT_FILE = "report.md"
REPEAT_REMEDY = "run `evaluate run` again with this variant; finished readings are not read again"
"""What brings back scores that are lost or broken."""


class VariantRecord(TypedDict):
    """A variant that has been read and scored."""

    model: str
    policy: str
    seconds: float
    """Wall clock of its run, seconds; of all attempts that came to an end."""
    fingerprint: str


class Evaluation(TypedDict):
    """What `evaluation.json` says."""

    format: str
    suite: str
    """Name of the suite, or of the question list and its documents, without credentials."""
    variants: dict[str, VariantRecord]
    """Variants that have been read, by name, in the order in which they were first read."""


def read_evaluation(output: Location) -> Evaluation | None:
    """The evaluation at the location; None if there is nothing.

    Raises:
        OutputError: it holds something else, or the evaluation of another version.
    """
    value = read_owner_record(output, EVALUATION_FILE, layout=EVALUATION_FORMAT)
    if value is not None and not _is_whole(value):
        raise OutputError(
            f"output: {output.uri}/{EVALUATION_FILE} is not whole; restore it, or run the evaluation into another "
            "folder"
        )
    return cast("Evaluation | None", value)


def _is_whole(value: Mapping[str, Any]) -> bool:
    variants = value.get("variants")
    return (
        "suite" in value
        and isinstance(variants, dict)
        and all(isinstance(each, dict) and each.keys() >= VariantRecord.__required_keys__ for each in variants.values())
    )


def claim_evaluation(output: Location, *, suite: str) -> Evaluation:
    """The evaluation of the suite of this name at the location: the one that is there, or a new one without variants.

    Raises:
        OutputError: the place holds something else, or the evaluation of another suite.
    """
    there = read_evaluation(output)
    if there is not None and there["suite"] == suite:
        return there
    if there is not None and (output / VARIANT_RUNS_FOLDER).files():
        raise OutputError(
            f"output: {output.uri} belongs to an evaluation over the suite {there['suite']}, not {suite}; choose "
            "another output"
        )
    evaluation = Evaluation(format=EVALUATION_FORMAT, suite=suite, variants={})
    write_json(output / EVALUATION_FILE, evaluation)
    return evaluation


def read_scores(output: Location, evaluation: Evaluation) -> pa.Table:
    """The scores of all variants, a table of `SCORES`.

    Raises:
        OutputError: a variant's scores can't be read; names the file.
    """
    tables = []
    for place in (output / f"{SCORES_FOLDER}/{name}.parquet" for name in evaluation["variants"]):
        with table_errors(place.uri, remedy=REPEAT_REMEDY):
            tables.append(read_parquet(place).select(SCORES.names).cast(SCORES))
    return pa.concat_tables(tables)
