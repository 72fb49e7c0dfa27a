"""How good a scan is, as its card says: by people's labels of a sample, and by evaluations of its readers."""

from collections.abc import Iterator, Sequence

from memagent_batch.domain.closing.plan import EVIDENCE, VALUE
from memagent_batch.domain.texts.markdown import escaped
from memagent_batch.masking import printable, shown
from memagent_batch.runs.manifest import Manifest
from memagent_batch.runs.record.estimates import ReviewEstimates
from memagent_batch.runs.record.evaluations import (
    ReaderEvaluation,
    Readers,
    Scores,
    closes_alike,
    differing_closing,
    differing_knobs,
    readers_of,
    whom,
)

SHOWN_CHARACTERS = 300
"""Of a question or a place, characters that are shown."""
SHOWN_ESTIMATES = 20
SHOWN_EVALUATIONS = 5


def estimate_lines(manifest: Manifest, estimates: Sequence[ReviewEstimates]) -> Iterator[str]:
    """What reviews of the output say, the latest first."""
    if not estimates:
        yield "There is no estimate of it here that can be read. `memagent review` makes one from people's labels."
        return
    yield "By people's labels of a sample, with 95 % intervals:"
    yield ""
    for each in estimates[:SHOWN_ESTIMATES]:
        of = "this run" if each.run_id == manifest["run_id"] else f"run {inline(each.run_id)}"
        shares = "; ".join(f"{name.replace('_', ' ')} {share}" for name, share in each.shares.items() if share)
        yield f"- {inline(each.question_id)}, {inline(each.looked_for)}, of {of}, {each.num_labels:,} labels: {shares}"
        yield from (f"  - {inline(remark)}" for remark in each.remarks)
    if len(estimates) > SHOWN_ESTIMATES:
        yield f"- and {len(estimates) - SHOWN_ESTIMATES:,} more"


def evaluation_lines(manifest: Manifest, evaluations: Sequence[ReaderEvaluation]) -> Iterator[str]:
    """What evaluations found of the readers of a scan, its own first."""
    yield ""
    if not evaluations:
        yield "No evaluation of its reader was attached. `memagent evaluate attach` does so."
        return
    yield "By questions with known answers about the documents of a suite, with 95 % intervals:"
    yield ""
    scan = readers_of(manifest)
    own_first = sorted(evaluations, key=lambda each: whom(each.readers, scan=scan) is None)  # each half still by date
    for each in own_first[:SHOWN_EVALUATIONS]:
        yield from _evaluation(each, scan=scan)
    if len(evaluations) > SHOWN_EVALUATIONS:
        yield f"- and {len(evaluations) - SHOWN_EVALUATIONS:,} more"


def _evaluation(each: ReaderEvaluation, *, scan: Readers) -> Iterator[str]:
    of = whom(each.readers, scan=scan)
    name = f"- {inline(shown(each.suite))}, read at {inline(each.finished_at)} by "
    if of is None:
        knobs = ", ".join(map(inline, differing_knobs(each.readers, scan=scan)))
        yield f"{name}another reader, whose scores say nothing of this scan; these differ: {knobs}"
        return
    yield f"{name}{of}:"
    if each.free:
        yield from _scores(each.free, of=f"readings scored on {inline(each.score_on)}")
    left_out = []
    if each.typed and closes_alike(each.readers, scan=scan, kind=VALUE):
        yield from _scores(each.typed, of="readings of typed questions")
    elif each.typed:
        left_out.append(VALUE)
    if each.evidence_hit and closes_alike(each.readers, scan=scan, kind=EVIDENCE):
        yield f"  - evidence on a right sentence {each.evidence_hit}"
    elif each.evidence_hit:
        left_out.append(EVIDENCE)
    if left_out:
        differing = differing_closing(each.readers, scan=scan, kinds=left_out)
        because = f"closing turns differ ({', '.join(differing)})" if differing else "no closing turns are recorded"
        yield f"  - not shown, since {because}: {', '.join(left_out)}"


def _scores(scores: Scores, *, of: str) -> Iterator[str]:
    shares = {
        "says not stated where it is not": scores.abstained,
        "says not stated where it is": scores.abstained_wrongly,
    }
    others = "".join(f"; {what} {share}" for what, share in shares.items() if share is not None)
    yield f"  - {scores.num_readings:,} {of}: score {scores.score}{others}"
    for length in scores.lengths:
        if length.length_tokens is not None:
            yield f"    - {length.length_tokens:,} tokens: {length.num_readings:,} readings, score {length.score}"


def inline(text: str) -> str:
    """A text that may come from anyone: one line, no markup, no character that can't be seen."""
    cut = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} …"
    return escaped(printable(cut))
