"""What evaluations found of the readers of an output: the files `evaluation/RUN_ID.json` that were put there."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from memagent_batch.domain.closing.plan import EVIDENCE, SUPPORT, VALUE
from memagent_batch.errors import OutputError
from memagent_batch.files.json_files import read_json
from memagent_batch.files.location import Location
from memagent_batch.logs import EventKind
from memagent_batch.runs.manifest import Manifest, SecondLookSummary
from memagent_batch.runs.record.estimates import Share

log = logging.getLogger(__name__)

EVALUATIONS_FOLDER = "evaluation"
"""Where they lie below an output."""
CLOSING_KNOBS = {VALUE: "json_tokens", EVIDENCE: "evidence_tokens", SUPPORT: "evidence_tokens"}
"""Of each kind of closing turn, the knob below `closing` that bounds it."""
_ASKED_BY = {VALUE: "answer_type", EVIDENCE: "closing.evidence", SUPPORT: "closing.support"}
"""What has each kind asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """What decides the answers of one reader."""

    reader_fingerprint: str
    """Its identity, hex."""
    extraction: str
    """How answers are taken out of responses, an `Extraction`."""
    parts: Mapping[str, Any]
    """`ReaderIdentity.parts`: what the fingerprint is made of."""

    def answers_like(self, other: "Reader | None") -> bool:
        """Whether both give the same answers. The name of a model decides nothing where its weights are hashed."""
        return (
            other is not None
            and self.reader_fingerprint == other.reader_fingerprint
            and self.extraction == other.extraction
        )

    def knobs(self) -> Mapping[str, Any]:
        """What a person can compare."""
        return {**self.parts, "extraction": self.extraction}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingTurn:
    """What decides a kind of closing turn beside the reader, whose fingerprint leaves it out."""

    texts: str
    """`closing_text_sha256`, hex."""
    max_tokens: int | None
    """The knob of `CLOSING_KNOBS`; None for the default, which follows from the reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """What decides the answers of a run, as its manifest says it."""

    first: Reader
    """The reader."""
    closing: Mapping[str, ClosingTurn]
    """What was asked after the answers, by kind; none where nothing was, or an older version read."""
    second: Reader | None = None
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
class Scores:
    """What was reached on some questions."""

    num_readings: int
    """Readings, those that failed included; each of these scores 0."""
    score: Share
    """Mean score over all tasks and lengths."""
    lengths: tuple[LengthScore, ...]
    """The same by length, from short to long."""
    abstained: Share | None
    """Answers `not stated` where the document does not state it; None where no such question was asked."""
    abstained_wrongly: Share | None
    """Answers `not stated` where the document states it; None where none may be given."""


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
    free: Scores | None
    """Questions without a type; None where all have one."""
    typed: Scores | None
    """Questions that ask for a typed value, which a closing turn gives; None where none does."""
    evidence_hit: Share | None
    """Readings with evidence on a right sentence; None where none was asked for, or none is known."""


def readers_of(manifest: Manifest) -> Readers:
    """What decided the answers of a run."""
    settings, look = manifest["settings"], manifest.get("second_look")
    first = Reader(
        reader_fingerprint=manifest["reader_fingerprint"], extraction=settings["extraction"], parts=manifest["reader"]
    )
    closing = {
        kind: ClosingTurn(texts=texts, max_tokens=settings["closing"][CLOSING_KNOBS[kind]])
        for kind, texts in manifest.get("closing_texts", {}).items()
    }
    second = _second_reader(look) if look else None
    if second is None:
        return Readers(first=first, closing=closing)
    escalate = {name: value for name, value in settings.get("escalate", {}).items() if name != "to"}
    return Readers(first=first, closing=closing, second=second, escalate=escalate)


def whom(evaluated: Readers, *, scan: Readers) -> str | None:
    """Whose reading of a scan an evaluation is of; None where no reader of the scan is the one that was evaluated.

    With two readers closing turns decide too: by them readings are doubtful.
    """
    is_first = evaluated.first.answers_like(scan.first)
    if evaluated.second is not None:
        is_second = evaluated.second.answers_like(scan.second)
        is_divided_alike = evaluated.escalate == scan.escalate and evaluated.closing == scan.closing
        return "both readers" if is_first and is_second and is_divided_alike else None
    if is_first:
        return "this reader" if scan.second is None else "the first reader alone"
    return "the second reader alone" if evaluated.first.answers_like(scan.second) else None


def differing_knobs(evaluated: Readers, *, scan: Readers) -> list[str]:
    """The knobs in which they differ, by name; those of a second reader begin with `escalate`."""
    names = [*_differing(evaluated.first.knobs(), scan.first.knobs())]
    if evaluated.second is not None:
        there = scan.second.knobs() if scan.second else {}
        names += _differing(evaluated.second.knobs(), there, prefix="escalate.to.")
        names += _differing(evaluated.escalate or {}, scan.escalate or {}, prefix="escalate.")
        names += differing_closing(evaluated, scan=scan, kinds=[*_ASKED_BY])
    return names


def closes_alike(evaluated: Readers, *, scan: Readers, kind: str) -> bool:
    """Whether a kind of closing turn was asked in both, and in the same way."""
    return kind in scan.closing and evaluated.closing.get(kind) == scan.closing[kind]


def differing_closing(evaluated: Readers, *, scan: Readers, kinds: Iterable[str]) -> list[str]:
    """What differs in these kinds of closing turns: knobs by name, and their texts."""
    names: list[str] = []
    for kind in kinds:
        one, other = evaluated.closing.get(kind), scan.closing.get(kind)
        if one is None or other is None:
            names += [_ASKED_BY[kind]] if one != other else []
            continue
        names += ["texts of closing turns"] if one.texts != other.texts else []
        names += [f"closing.{CLOSING_KNOBS[kind]}"] if one.max_tokens != other.max_tokens else []
    return list(dict.fromkeys(names))


def read_evaluations(output: Location) -> dict[str, ReaderEvaluation]:
    """The evaluations that were put into an output, by file below it, the latest first.

    A damaged one is left out and logged. What lies in folders below is none, such as the output of `evaluate run`.

    Raises:
        StorageError: one can't be read.
    """
    folder = output / EVALUATIONS_FOLDER
    names = {path.removeprefix(f"{folder.path}/"): path for path in folder.files()}
    found = {
        f"{EVALUATIONS_FOLDER}/{name}": each
        for name, path in names.items()
        if name.endswith(".json") and "/" not in name and (each := _read(output.at(path))) is not None
    }
    return dict(sorted(found.items(), key=lambda each: each[1].finished_at, reverse=True))


def _second_reader(look: SecondLookSummary) -> Reader | None:
    """The second reader; None where people look."""
    parts, fingerprint, extraction = look["reader"], look["reader_fingerprint"], look["extraction"]
    if parts is None or fingerprint is None or extraction is None:
        return None
    return Reader(reader_fingerprint=fingerprint, extraction=extraction, parts=parts)


def _differing(one: Mapping[str, Any], other: Mapping[str, Any], *, prefix: str = "") -> Iterator[str]:
    """Names of the values that differ, group by group."""
    left_out = {"model"} if one.get("model_sha256") else set()
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
    except OutputError:
        problem = "it is no JSON object"
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        problem = f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['type']}"
    message = f"{place} is no evaluation of a reader and is not shown ({problem})"
    log.warning(message, extra={"event": EventKind.RECORD_UNREADABLE})
    return None
