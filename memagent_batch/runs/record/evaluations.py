"""What evaluations found of the readers of an output: the files `evaluation/RUN_ID.json` that were put there."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from memagent_batch.errors import OutputError
from memagent_batch.files.json_files import read_json
from memagent_batch.files.location import Location
from memagent_batch.logs import EventKind
from memagent_batch.runs.manifest import Manifest
from memagent_batch.runs.record.estimates import Share

log = logging.getLogger(__name__)

EVALUATIONS_FOLDER = "evaluation"
"""Where they lie below an output."""
DECISIVE = ("reader_fingerprint", "extraction")
"""What two readers that answer alike have in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """What decides the answers of a run, as its manifest says it."""

    first: Mapping[str, Any]
    """The reader: `ReaderIdentity.parts`, `reader_fingerprint`, and `extraction` of answers from responses."""
    second: Mapping[str, Any] | None = None
    """The same of what reads doubtful readings again; None where nothing does."""
    escalate: Mapping[str, Any] | None = None
    """Which readings it gets; None where there is no second reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthScore:
    """What was reached at one length of documents."""

    length_tokens: int | None
    """Length that the suite asks for, tokens; None where it asks for none."""
    num_readings: int
    """Readings, those that failed included."""
    score: Share
    """Mean score."""


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
    readers: Readers
    """What read."""
    num_readings: int
    """Readings, those that failed included; each of these scores 0."""
    score: Share
    """Mean score over all tasks and lengths."""
    lengths: tuple[LengthScore, ...]
    """The same by length, from short to long."""
    evidence_hit: Share | None
    """Readings with evidence on a right sentence; None where none was asked for, or none is known."""
    abstained: Share | None
    """Answers `not stated` where the document does not state it; None where no such question was asked."""
    abstained_wrongly: Share | None
    """Answers `not stated` where the document states it; None where none may be given."""


def readers_of(manifest: Manifest) -> Readers:
    """What decided the answers of a run."""
    settings, look = manifest["settings"], manifest.get("second_look")
    first = _reader(manifest["reader"], manifest["reader_fingerprint"], extraction=settings.get("extraction"))
    if look is None or look["reader"] is None:
        return Readers(first=first)
    second = _reader(look["reader"], look["reader_fingerprint"], extraction=look["extraction"])
    escalate = {name: value for name, value in settings.get("escalate", {}).items() if name != "to"}
    return Readers(first=first, second=second, escalate=escalate)


def whom(evaluated: Readers, *, scan: Readers) -> str | None:
    """Whose reading of a scan an evaluation is of; None where no reader of the scan is the one that was evaluated."""
    is_first = _is_same(evaluated.first, scan.first)
    if evaluated.second is not None:
        is_both = is_first and _is_same(evaluated.second, scan.second) and evaluated.escalate == scan.escalate
        return "both readers" if is_both else None
    if is_first:
        return "this reader" if scan.second is None else "the first reader alone"
    return "the second reader alone" if _is_same(evaluated.first, scan.second) else None


def differing_knobs(evaluated: Readers, *, scan: Readers) -> list[str]:
    """The knobs in which they differ, by name; those of a second reader begin with `escalate`."""
    names = [*_differing(evaluated.first, scan.first)]
    if evaluated.second is not None:
        names += _differing(evaluated.second, scan.second or {}, prefix="escalate.to.")
        names += _differing(evaluated.escalate or {}, scan.escalate or {}, prefix="escalate.")
    return names


def read_evaluations(output: Location) -> list[ReaderEvaluation]:
    """The evaluations that were put into an output, the latest first; a damaged one is left out and logged.

    Raises:
        StorageError: one can't be read.
    """
    places = [path for path in (output / EVALUATIONS_FOLDER).files() if path.endswith(".json")]
    found = [each for path in places if (each := _read(output.at(path))) is not None]
    return sorted(found, key=lambda each: each.finished_at, reverse=True)


def _reader(parts: Mapping[str, Any], fingerprint: str | None, *, extraction: str | None) -> dict[str, Any]:
    return {**parts, "extraction": extraction, "reader_fingerprint": fingerprint}


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any] | None) -> bool:
    """Whether two readers give the same answers. The name of a model decides nothing where its weights are hashed."""
    return other is not None and all(one[name] == other[name] for name in DECISIVE)


def _differing(one: Mapping[str, Any], other: Mapping[str, Any], *, prefix: str = "") -> Iterator[str]:
    """Names of the values that differ, group by group."""
    left_out = {"reader_fingerprint"} | ({"model"} if one.get("model_sha256") else set())
    for name in sorted({*one, *other} - left_out):
        here, there = one.get(name), other.get(name)
        if isinstance(here, Mapping) and isinstance(there, Mapping):
            yield from _differing(here, there, prefix=f"{prefix}{name}.")
        elif here != there:
            yield f"{prefix}{name}"


def _read(place: Location) -> ReaderEvaluation | None:
    """The evaluation in a file; None where it holds something else."""
    try:
        return TypeAdapter(ReaderEvaluation).validate_python(read_json(place))
    except (OutputError, ValueError) as error:
        message = f"{place} is no evaluation of a reader and is not shown: {type(error).__name__}: {error}"
        log.warning(message, extra={"event": EventKind.RECORD_UNREADABLE})
        return None
