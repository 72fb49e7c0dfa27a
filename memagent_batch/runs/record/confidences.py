"""What a confidence is worth where labels have said so: how many answers of some confidence are right."""

import logging
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from memagent_batch.errors import OutputError
from memagent_batch.files.location import Location
from memagent_batch.log.question_list import ASKED_FOLDER, read_asked
from memagent_batch.logs import EventKind
from memagent_batch.runs.escalation.thresholds import LearntThreshold, read_learnt
from memagent_batch.runs.manifest import Manifest

log = logging.getLogger(__name__)


def read_confidences(output: Location, manifest: Manifest, *, questions: pa.Table | None = None) -> Sequence[str]:
    """What `memagent review calibrate` found of a run's first reader, a text for each question of the run.

    Args:
        output: The output.
        manifest: The run.
        questions: Its question list with hashes; None to read it.

    Raises:
        StorageError: a file can't be read.
    """
    try:
        learnt = read_learnt(output)
        own = {
            name: _text(each)
            for name, each in learnt.items()
            if each["reader_fingerprint"] == manifest["reader_fingerprint"] and each["confidence"]
        }
    except (OutputError, KeyError, TypeError, ValueError) as error:
        message = f"thresholds of {output} can't be read, and their confidences are not shown: {error}"
        log.warning(message, extra={"event": EventKind.RECORD_UNREADABLE})
        return []
    if not own:
        return []
    if questions is None and (output / f"{ASKED_FOLDER}/{manifest['run_id']}.parquet").exists():
        questions = read_asked(output, run_id=manifest["run_id"])
    hashes = set(questions["question_hash"].to_pylist()) if questions is not None else set()
    return [text for name, text in own.items() if name in hashes]


def _text(threshold: LearntThreshold) -> str:
    confidence: Any = threshold["confidence"]
    worth = [f"{100 * each['share_right']:.1f} % at {100 * each['confidence']:g} %" for each in confidence["worth"]]
    shares = ", ".join(worth) or "not known"
    of = f"{threshold['question_id']}, by {confidence['num_labels']:,} labels"
    return f"{of}: share of answers that are right, by confidence: {shares}"
