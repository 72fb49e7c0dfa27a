"""What evaluations found of a reader: the files `evaluation/FINGERPRINT/RUN_ID.json` that were put into an output."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from memagent_batch.domain.closing.prompts import EVIDENCE, SUPPORT, VALUE
from memagent_batch.errors import OutputError
from memagent_batch.files.json_files import read_json
from memagent_batch.files.location import Location
from memagent_batch.logs import EventKind
from memagent_batch.runs.manifest import Manifest
from memagent_batch.runs.record.estimates import Share

log = logging.getLogger(__name__)

EVALUATIONS_FOLDER = "evaluation"
"""Where they lie below an output."""
FOLLOW_UP_LIMITS = {VALUE: "json_tokens", EVIDENCE: "evidence_tokens", SUPPORT: "evidence_tokens"}
"""Of each kind of follow-up, the setting below `closing` that bounds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthScore:
    """What was reached at one length of documents."""

    length_tokens: int | None
    """Length that the suite asks for, tokens; None if it asks for none."""
    num_readings: int
    """Readings, those that failed included."""
    score: Share
    """Mean score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What was reached on some questions."""

    num_readings: int
    """Readings, those that failed included; each of these scores 0."""
    score: Share
    """Mean score over all tasks and lengths."""
    lengths: tuple[LengthScore, ...]
    """The same by length, from short to long."""
    abstained: Share | None
    """Answers `not stated` if the document does not state it; None if no such question was asked."""
    abstained_wrongly: Share | None
    """Answers `not stated` if the document states it; None if none may be given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderEvaluation:
    """What an evaluation found of a reader."""

    suite: str
    """URI of the suite, without credentials."""
    suite_sha256: str
    """Hash of its description and questions, hex."""
    variant: str
    """Name of the reader in the evaluation."""
    run_id: str
    """The run that read the suite."""
    finished_at: str
    """When it ended, ISO 8601, UTC."""
    score_on: str
    """Which text of a reading was scored, a `ScoreOn`."""
    reader_fingerprint: str
    extraction: str
    """How answers were taken out of responses, an `Extraction`."""
    follow_ups: Mapping[str, str]
    """What decides each kind of follow-up that was asked; see `follow_up_texts`."""
    free: Scores | None
    """Questions without a type; None if all have one."""
    typed: Scores | None
    """Questions that ask for a typed value, which a follow-up gives; None if none does."""
    evidence_hit: Share | None
    """Readings with evidence on a right sentence; None if none was asked for, or none is known."""


def follow_up_texts(manifest: Manifest) -> dict[str, str]:
    """What decides each kind of follow-up that a run asked, beside its reader: texts and limit."""
    texts = manifest.get("closing_texts", {})
    return {
        kind: f"{value}, {manifest['settings']['closing'][FOLLOW_UP_LIMITS[kind]]}" for kind, value in texts.items()
    }


def evaluation_file(manifest: Manifest, *, evaluated_in: str) -> str:
    """Where an output has what the run `evaluated_in` found of the reader of `manifest`."""
    return f"{EVALUATIONS_FOLDER}/{manifest['reader_fingerprint']}/{evaluated_in}.json"


def read_evaluations(output: Location, manifest: Manifest) -> list[ReaderEvaluation]:
    """The evaluations of the reader of a run, the latest first; a damaged one is left out and logged.

    Raises:
        StorageError: one can't be read.
    """
    folder = output / f"{EVALUATIONS_FOLDER}/{manifest['reader_fingerprint']}"
    extraction = manifest["settings"]["extraction"]
    found = [_read(output.at(path)) for path in folder.files() if path.endswith(".json")]
    own = [each for each in found if each is not None and each.extraction == extraction]
    return sorted(own, key=lambda each: each.finished_at, reverse=True)


def _read(place: Location) -> ReaderEvaluation | None:
    """The evaluation in a file; None if it is something else."""
    try:
        value = read_json(place) or {}
        if value.get("readers", {}).get("second") is None:
            return TypeAdapter(ReaderEvaluation).validate_python(value)
        problem = "it is of two readers in one run, as older versions had them"
    except OutputError:
        problem = "it is not a JSON object"
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        problem = f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['type']}"
    message = f"{place} is not an evaluation of a reader and is not shown ({problem})"
    log.warning(message, extra={"event": EventKind.RECORD_UNREADABLE})
    return None
