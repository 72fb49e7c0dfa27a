"""`memagent review plan`: what so many labels will say, before anyone reads."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from memagent_batch.cli.main import run_command
from memagent_batch.cli.options import Manual, OptionParser, output_of
from memagent_batch.cli.review.asked_options import add_asked_options, check_asked
from memagent_batch.errors import SettingsError

if TYPE_CHECKING:
    from memagent_batch.flows.review import ReviewPlan

MANUAL = Manual(
    command="memagent review plan",
    about="Says how wide the 95 % intervals of recall and precision will be for so many labels, for several truths\n"
    "that may hold. Where what is looked for is rare, it says that no sample of a size people can read helps.",
    examples=(
        "memagent review plan out/ --question clause --labels 750",
        "memagent review plan out/ --question risk --by value_label --labels 2000",
    ),
    page="docs/how-to/review.md",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the plan; returns the exit code."""
    return run_command(partial(_plan, sys.argv[1:] if arguments is None else arguments))


def _plan(arguments: Sequence[str]) -> None:
    parser = OptionParser(MANUAL)
    add_asked_options(parser)
    parser.add_argument(
        "--precision",
        type=float,
        default=0.8,
        metavar="P",
        help="share of what is flagged that is assumed to be right (default: %(default)s)",
    )
    parser.add_argument(
        "--width",
        type=float,
        default=0.2,
        metavar="W",
        help="wanted width of the interval of recall (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    for name in ("precision", "width"):
        if not 0 < getattr(options, name) <= 1:
            raise SettingsError(f"--{name}: {getattr(options, name)} is no share; give more than 0, at most 1")
    flagged = check_asked(options)
    from memagent_batch.flows.review import Asked, plan_review
    from memagent_batch.review.sample.record import rule_of

    rule = rule_of(flagged, by=options.by, unsure_below=options.unsure)
    asked = Asked(question_id=options.question, rule=rule, labels=options.labels, seed=options.seed)
    output = output_of(options)
    plan = plan_review(output, asked, precision=options.precision, width=options.width)
    print(json.dumps(asdict(plan), indent=2) if options.json else "\n".join(_plan_lines(plan, width=options.width)))


def _plan_lines(plan: "ReviewPlan", *, width: float) -> Iterator[str]:
    from memagent_batch.domain.texts.shares import percent
    from memagent_batch.review.sample.plan import POOR_RICHNESS, TRIED_LABELS

    yield f"{'stratum':<24}{'readings':>12}{'labels':>10}"
    for name, size in plan.readings.items():
        yield f"{name[:23]:<24}{size:>12,}{plan.drawn[name]:>10,}"
    if plan.num_unreadable:
        yield f"{'without a text':<24}{plan.num_unreadable:>12,}{0:>10}"
    yield ""
    yield "If this share of what was not flagged is in truth sought (elusion), the intervals will be:"
    head = ("elusion", "richness", "recall", "interval", "its low end", "precision", f"labels for {width:g}")
    yield "".join(f"{cell:>15}" for cell in head)
    for row in plan.rows:
        if row.value is not None and row.elusion == plan.rows[0].elusion:
            yield f"{row.value}:"
        cells = (
            *(percent(row.elusion), percent(row.richness), percent(row.recall.value)),
            *(f"{row.recall.width:.2f} wide", percent(row.recall.low), f"{row.precision.width:.2f} wide"),
            f"{row.num_labels_needed:,}" if row.num_labels_needed else f"over {TRIED_LABELS[-1]:,}",
        )
        yield "".join(f"{cell:>15}" for cell in cells)
    if any(row.richness < POOR_RICHNESS or not row.helps for row in plan.rows):
        yield ""
        yield (
            f"Where richness is below {percent(POOR_RICHNESS)}, or no number of labels is named, no sample that "
            "people can read says much of recall: measure precision, and look for what was missed in other ways."
        )


if __name__ == "__main__":
    sys.exit(main())
