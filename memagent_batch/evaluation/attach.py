"""`evaluate attach`: puts what an evaluation found of a reader into the output of a scan by the same reader."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.errors import OutputError
from memagent_batch.evaluation import measures
from memagent_batch.evaluation.record import REPEAT_REMEDY, VariantRecord, open_evaluation, read_scores
from memagent_batch.evaluation.scoring import CellSummary, Grouping, summarise
from memagent_batch.files.json_files import write_json
from memagent_batch.files.location import Location
from memagent_batch.runs.manifest import Manifest, require_manifest
from memagent_batch.runs.record.estimates import Share
from memagent_batch.runs.record.evaluations import (
    LengthScore,
    ReaderEvaluation,
    Scores,
    evaluation_file,
    follow_up_texts,
)


class Attached(TypedDict):
    """An evaluation that the cards of an output show from now on."""

    variant: str
    score: float
    """Mean score, 0 to 1."""
    file: str


def attach(source: Location, *, output: Location) -> list[Attached]:
    """Puts the variants of an evaluation into an output whose last run read with them; the same again changes nothing.

    Raises:
        OutputError: no variant is the reader of the output: names the settings in which each differs.
    """
    evaluation = open_evaluation(source)
    scan = require_manifest(output)
    scores = read_scores(source, evaluation)
    attached: list[Attached] = []
    others: list[str] = []
    for variant in evaluation.variants:
        manifest = _manifest(source / variant.run, variant)
        if not _answers_like(manifest, scan):
            others.append(f"{variant.name!r} ({', '.join(_differing(_reader(manifest), _reader(scan)))})")
            continue
        own = scores.filter(pc.equal(scores["variant"], variant.name))
        found = _summary(variant, suite=evaluation.suite, manifest=manifest, scores=own)
        file = evaluation_file(scan, evaluated_in=variant.run_id)
        write_json(output / file, asdict(found))
        score = summarise(own, grouping=Grouping.VARIANT)[0].score
        attached.append({"variant": variant.name, "score": score, "file": file})
    if not attached:
        raise OutputError(
            f"no reader of {source.uri} is the one of {output.uri}; they differ in: {'; '.join(others)}. Evaluate with "
            "the job file of the scan"
        )
    return attached


def _manifest(run: Location, variant: VariantRecord) -> Manifest:
    manifest = require_manifest(run)
    if manifest["run_id"] != variant.run_id:
        raise OutputError(f"variant {variant.name!r} was read again and not scored since; {REPEAT_REMEDY}")
    return manifest


def _answers_like(one: Manifest, other: Manifest) -> bool:
    """Whether the readers of two runs give the same answers."""
    same_reader = one["reader_fingerprint"] == other["reader_fingerprint"]
    return same_reader and one["settings"]["extraction"] == other["settings"]["extraction"]


def _reader(manifest: Manifest) -> dict[str, Any]:
    """What decides the answers of a run, as a person can compare it."""
    return {**manifest["reader"], "extraction": manifest["settings"]["extraction"]}


def _differing(one: Mapping[str, Any], other: Mapping[str, Any], *, prefix: str = "") -> Iterator[str]:
    """Names of the settings that differ, group by group."""
    for name in sorted({*one, *other}):
        here, there = one.get(name), other.get(name)
        if isinstance(here, Mapping) and isinstance(there, Mapping):
            yield from _differing(here, there, prefix=f"{prefix}{name}.")
        elif here != there:
            yield f"{prefix}{name}"


def _summary(variant: VariantRecord, *, suite: str, manifest: Manifest, scores: pa.Table) -> ReaderEvaluation:
    closing = next(iter(measures.measure(scores)), None)
    evidence = closing.evidence if closing else None
    is_free = pc.is_null(scores["answer_type"])
    return ReaderEvaluation(
        suite=suite,
        suite_sha256=variant.suite_sha256,
        variant=variant.name,
        run_id=variant.run_id,
        finished_at=variant.finished_at,
        score_on=variant.score_on,
        reader_fingerprint=manifest["reader_fingerprint"],
        extraction=manifest["settings"]["extraction"],
        follow_ups=follow_up_texts(manifest),
        free=_scores(scores.filter(is_free)),
        typed=_scores(scores.filter(pc.invert(is_free))),
        evidence_hit=_share(evidence.hit if evidence else None),
    )


def _scores(scores: pa.Table) -> Scores | None:
    """What was reached on these readings; None where there are none."""
    if not scores.num_rows:
        return None
    whole = summarise(scores, grouping=Grouping.VARIANT)[0]
    closing = next(iter(measures.measure(scores)), None)
    abstention = closing.abstention if closing else None
    return Scores(
        num_readings=whole.n,
        score=_score(whole),
        lengths=tuple(
            LengthScore(length_tokens=cell.length_tokens, num_readings=cell.n, score=_score(cell))
            for cell in summarise(scores, grouping=Grouping.LENGTH)
        ),
        abstained=_share(abstention.right if abstention else None),
        abstained_wrongly=_share(abstention.lost if abstention else None),
    )


def _score(cell: CellSummary) -> Share:
    return Share(value=cell.score, low=cell.low, high=cell.high)


def _share(share: measures.Share | None) -> Share | None:
    return None if share is None else Share(value=share.share, low=share.interval.low, high=share.interval.high)
