"""`evaluate attach`: puts what an evaluation found of a reader into the output of a scan by the same reader."""

from dataclasses import asdict
from typing import TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.domain.scoring.intervals import Interval
from memagent_batch.errors import OutputError
from memagent_batch.evaluation import measures
from memagent_batch.evaluation.record import VariantRecord
from memagent_batch.evaluation.results import REPEAT_REMEDY, open_evaluation, read_scores
from memagent_batch.evaluation.scoring import CellSummary, Grouping, summarise
from memagent_batch.files.json_files import write_json
from memagent_batch.files.location import Location
from memagent_batch.runs.manifest import require_manifest
from memagent_batch.runs.record.estimates import Share
from memagent_batch.runs.record.evaluations import (
    EVALUATIONS_FOLDER,
    LengthScore,
    ReaderEvaluation,
    Readers,
    Scores,
    differing_knobs,
    readers_of,
    whom,
)


class Attached(TypedDict):
    """An evaluation that the cards of an output show from now on."""

    variant: str
    """Name of the reader in the evaluation."""
    of: str
    """Which reader of the output it is."""
    score: float
    """Mean score, 0 to 1."""
    file: str
    """Its file, below the output."""


def attach(source: Location, *, output: Location) -> list[Attached]:
    """Puts the variants of an evaluation into an output whose last run read with them; the same again changes nothing.

    Args:
        source: Output of `evaluate run`.
        output: Output of `answer`.

    Raises:
        OutputError: no variant is a reader of the output: names the knobs in which each differs.
    """
    evaluation = open_evaluation(source)
    scan = readers_of(require_manifest(output))
    scores = read_scores(source, evaluation)
    attached: list[Attached] = []
    others: list[str] = []
    for variant in evaluation.variants:
        readers = _readers(source / variant.run, variant)
        of = whom(readers, scan=scan)
        if of is None:
            others.append(f"{variant.name!r} ({', '.join(differing_knobs(readers, scan=scan))})")
            continue
        own = scores.filter(pc.equal(scores["variant"], variant.name))
        found = _summary(variant, suite=evaluation.suite, readers=readers, scores=own)
        file = f"{EVALUATIONS_FOLDER}/{variant.run_id}.json"
        write_json(output / file, asdict(found))
        attached.append(
            {
                "variant": variant.name,
                "of": of,
                "score": summarise(own, grouping=Grouping.VARIANT)[0].score,
                "file": file,
            }
        )
    if not attached:
        raise OutputError(
            f"no reader of {source.uri} is one of {output.uri}; they differ in: {'; '.join(others)}. Evaluate with the "
            "job file of the scan"
        )
    return attached


def _readers(run: Location, variant: VariantRecord) -> Readers:
    manifest = require_manifest(run)
    if manifest["run_id"] != variant.run_id:
        raise OutputError(f"variant {variant.name!r} was read again and not scored since; {REPEAT_REMEDY}")
    return readers_of(manifest)


def _summary(variant: VariantRecord, *, suite: str, readers: Readers, scores: pa.Table) -> ReaderEvaluation:
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
        readers=readers,
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
    return _with_interval(cell.score, Interval(low=cell.low, high=cell.high))


def _share(share: measures.Share | None) -> Share | None:
    return None if share is None else _with_interval(share.share, share.interval)


def _with_interval(value: float, interval: Interval) -> Share:
    return Share(value=value, low=interval.low, high=interval.high)
