"""What a review says, as a Markdown page for people."""

from collections.abc import Iterator, Sequence

from memagent_batch.domain.texts.escapes import escaped
from memagent_batch.domain.texts.shares import percent, quantity
from memagent_batch.review.estimates import CountedLabels, MeasureEstimates, ReviewEstimate, ValueEstimate
from memagent_batch.review.measures import Measure, MeasureEstimate
from memagent_batch.review.record import Review

MEANINGS = {
    Measure.PRECISION: "of what was found is right",
    Measure.RECALL: "of all that is right was found",
    Measure.F1: "F1, the harmonic mean of the two",
    Measure.ELUSION: "of what was not found should have been",
    Measure.RICHNESS: "of all readings are what is looked for",
}
"""What follows the share, in words."""


def estimate_page(review: Review, counted: CountedLabels, estimate: ReviewEstimate) -> str:
    """The page."""
    record = review.record
    about = f"`{review.decision.about}`"
    rule = f"each value of {about}" if record["by"] else about
    lines = [
        f"# Review {record['review_id']}",
        "",
        f"Run {record['run_id']}, question {escaped(record['question_id'])}: {escaped(record['question'])}",
        "",
        f"Flagged: {rule}. {sum(record['readings'].values()):,} readings, {len(counted.units):,} of them drawn by "
        f"seed {record['seed']}; labels to {record['purpose']}.",
        "",
        *_remarks(review, counted, estimate),
    ]
    for each in estimate.values:
        lines += ["", *_value_lines(each, is_sequence=estimate.is_sequence)]
    lines += ["", "## All readings", "", *_all_lines(estimate)]
    return "\n".join(lines) + "\n"


def _remarks(review: Review, counted: CountedLabels, estimate: ReviewEstimate) -> Iterator[str]:
    """What limits the estimates."""
    looks = [growth for growth in review.record["grown"] if growth["is_after_look"]]
    if any("review_id" not in growth for growth in looks):
        yield "- **The size of the sample was changed after an estimate from it**: the intervals are wider for that."
    if others := dict.fromkeys(growth["review_id"] for growth in looks if "review_id" in growth):
        yield (
            f"- **Other samples of these readings were estimated before ({', '.join(others)})**: the intervals are "
            "wider for that."
        )
    if estimate.is_sequence:
        yield (
            "- The intervals are confidence sequences of 95 %, which hold at all times at once, except for those of "
            "agreement and evidence: these hold for one look."
        )
    yield from _remarks_on_labels(counted)
    for each in estimate.values[0].strata:
        if each.is_unknown:
            yield (
                f"- **Nothing is known of {escaped(each.name)}**: none of its {each.num_readings:,} readings has a "
                "label that counts and says something. Measures that rest on it are not known; draw and label some."
            )
    if review.record["num_unreadable"]:
        number = review.record["num_unreadable"]
        yield (
            f"- {number:,} documents have no text that anyone can read. The error rate counts them as wrong; all other "
            "measures are of the readings that can be read."
        )


def _remarks_on_labels(counted: CountedLabels) -> Iterator[str]:
    """Which labels count, and which don't."""
    if num_seen := counted.num_judged_seen:
        yield (
            f"- **{num_seen:,} readings count by labels that were given with the scan's answer in view** "
            "(`--with-seen`): who has seen an answer agrees with it more often, and the scan looks better than it is."
        )
    remarks = {
        "are not labelled yet; the intervals hold however often you look.": counted.num_left,
        "left people without an answer (`unclear`); they are left out.": counted.num_unclear,
        "have only labels that were given with the scan's answer in view; these are left out.": counted.num_seen,
        "have only labels of another decision (another condition or other choices); these are left out.": (
            counted.num_other
        ),
        "of the sample were also used to develop by.": counted.num_develop,
    }
    yield from (f"- {number:,} readings {what}" for what, number in remarks.items() if number)


def _value_lines(estimate: ValueEstimate, *, is_sequence: bool) -> Iterator[str]:
    yield f"## {'What is flagged' if estimate.value is None else escaped(estimate.value)}"
    yield ""
    corrected = estimate.allowing_for_errors
    kind = "95 % sequence" if is_sequence else "95 % interval"
    yield f"| measure | share | {kind} |{' allowing for errors of reviewers |' if corrected else ''} |"
    yield f"|---|---|---|{'---|' if corrected else ''}---|"
    for measure, meaning in MEANINGS.items():
        yield _measure_line(measure, meaning, estimate.measures, corrected)
    yield ""
    if worst := estimate.recall_at_worst:
        what = "are what is looked for" if estimate.value is None else f"are {escaped(estimate.value)}"
        yield (
            f"If all documents that nobody can read {what}, and were missed, recall is {percent(worst.value)} "
            f"({_interval(worst)})."
        )
        yield ""
    yield "| stratum | readings | labelled | positive |"
    yield "|---|---|---|---|"
    for each in estimate.strata:
        name = f"**{escaped(each.name)}**" if each.is_found else escaped(each.name)
        yield f"| {name} | {each.num_readings:,} | {each.num_labelled:,} | {each.num_positive:,} |"


def _measure_line(
    measure: Measure, meaning: str, measures: MeasureEstimates, corrected: MeasureEstimates | None
) -> str:
    estimate = measures[measure]
    cells = [measure.value, percent(estimate.value), _interval(estimate)]
    if corrected:
        cells.append(f"{percent(corrected[measure].value)} ({_interval(corrected[measure])})")
    return f"| {' | '.join([*cells, meaning])} |"


def _all_lines(estimate: ReviewEstimate) -> Sequence[str]:
    agreement, evidence = estimate.agreement, estimate.evidence
    lines = [
        f"- Error rate: {percent(estimate.error_rate.value)} ({_interval(estimate.error_rate)}) of all readings "
        "have a wrong answer or none."
    ]
    if agreement.num_pairs:
        kappa = "not defined" if agreement.kappa is None else f"{agreement.kappa:.2f}"
        lines.append(
            f"- Two people agree on {percent(agreement.share)} of the {quantity(agreement.num_pairs, 'reading')} drawn "
            "for two "
            f"({percent(agreement.interval.low)} to {percent(agreement.interval.high)}); Cohen's kappa {kappa}, "
            "over the sample as it was drawn."
        )
    else:
        lines.append("- Nobody labelled a reading twice: how often reviewers err is not known.")
    if evidence:
        lines.append(
            f"- Evidence: {percent(evidence.share)} ({percent(evidence.interval.low)} to "
            f"{percent(evidence.interval.high)}) of the sentences support the answer; {evidence.num_sentences:,} "
            f"sentences of {evidence.num_readings:,} readings, each stratum by its size "
            f"({', '.join(map(escaped, evidence.strata))}).{_left_text(evidence.strata_left)}"
        )
    return lines


def _left_text(strata: Sequence[str]) -> str:
    return f" Nothing is known of the sentences of {', '.join(map(escaped, strata))}: label some." if strata else ""


def _interval(estimate: MeasureEstimate) -> str:
    return f"{percent(estimate.low)} to {percent(estimate.high)}"
