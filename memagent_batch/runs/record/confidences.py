"""What a confidence is worth where labels have said so: how many answers of some confidence are right."""

import logging
from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa

from memagent_batch.domain.texts.shares import percent
from memagent_batch.errors import OutputError
from memagent_batch.files.json_files import read_json
from memagent_batch.files.location import Location
from memagent_batch.log.question_list import ASKED_FOLDER, CLOSING_FINGERPRINT, read_asked
from memagent_batch.logs import EventKind
from memagent_batch.runs.escalation.thresholds import LearntThreshold, threshold_places
from memagent_batch.runs.manifest import Manifest

log = logging.getLogger(__name__)


def read_confidences(output: Location, manifest: Manifest, *, questions: pa.Table | None = None) -> Sequence[str]:
    """What `memagent review calibrate` found of a run's first reader, a text for each question of the run.

    Args:
        output: The output.
        manifest: The run.
        questions: Its question list with hashes; None to read it.

    Raises:
        OutputError: the question list can't be read.
        StorageError: a file can't be read.
    """
    places = threshold_places(output)
    found = dict(each for each in (_confidence(place, manifest) for place in places) if each is not None)
    if not found:
        return []
    if questions is None and (output / f"{ASKED_FOLDER}/{manifest['run_id']}.parquet").exists():
        questions = read_asked(output, run_id=manifest["run_id"])
    asked = _closed_questions(questions) if questions is not None else set()
    return [text for question, text in found.items() if question in asked]


def _closed_questions(questions: pa.Table) -> set[tuple[str, str | None]]:
    """Each question of a list with hashes: its hash, and the fingerprint of what was asked after its answers."""
    has_closings = CLOSING_FINGERPRINT in questions.schema.names
    closings = questions[CLOSING_FINGERPRINT].to_pylist() if has_closings else [None] * questions.num_rows
    return set(zip(questions["question_hash"].to_pylist(), closings, strict=True))


def _confidence(place: Location, manifest: Manifest) -> tuple[tuple[str, str | None], str] | None:
    """Question, and text of a threshold; None where it is of another reader, says nothing, or is damaged."""
    try:
        threshold = cast("LearntThreshold", read_json(place))
        if threshold["reader_fingerprint"] != manifest["reader_fingerprint"] or not threshold["confidence"]:
            return None
        return (threshold["question_hash"], threshold["closing_fingerprint"]), _text(threshold)
    except (OutputError, KeyError, TypeError, ValueError) as error:
        message = (
            f"{place} is damaged or of an older version, and its confidence is not shown: {type(error).__name__}: "
            f"{error}; say `memagent review calibrate` again"
        )
        log.warning(message, extra={"event": EventKind.RECORD_UNREADABLE})
        return None


def _text(threshold: LearntThreshold) -> str:
    confidence: Any = threshold["confidence"]
    worth = [f"{percent(each['share_right'])} at {100 * each['confidence']:g} %" for each in confidence["worth"]]
    shares = ", ".join(worth) or "not known"
    of = f"{threshold['question_id']}, by {confidence['num_labels']:,} labels"
    return f"{of}: share of answers that are right, by confidence: {shares}"
