"""`memagent review estimate`: how good the scan is, with intervals."""

import json
import sys
from collections.abc import Sequence
from functools import partial

from memagent_batch.cli.main import run_command
from memagent_batch.cli.options import Manual, OptionParser, output_of
from memagent_batch.domain.texts.markdown import unescaped

MANUAL = Manual(
    command="memagent review estimate",
    about="Says how good the scan is by the labels of a review: precision, recall, F1, elusion, richness, error rate,\n"
    "each with its 95 % interval, and how far reviewers agree. Writes estimate.json and estimate.md into the review.",
    examples=(
        "memagent review estimate out/",
        "memagent review estimate out/ --review clause-1a2b3c4d5e --json",
    ),
    page="docs/how-to/review.md",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the estimates; returns the exit code."""
    return run_command(partial(_estimate, sys.argv[1:] if arguments is None else arguments))


def _estimate(arguments: Sequence[str]) -> None:
    parser = OptionParser(MANUAL)
    parser.add_argument("output", help="the output that was reviewed")
    parser.add_argument("--review", metavar="ID", help="the review (default: the only one)")
    parser.add_argument(
        "--so-far",
        action="store_true",
        help="estimate before all is labelled: the intervals are wider, and hold however often you look",
    )
    parser.add_argument("--with-seen", action="store_true", help="count labels that were given with the answer in view")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_storage_options()
    options = parser.parse_args(arguments)
    from memagent_batch.flows.review import estimate

    output = output_of(options)
    values, page = estimate(output, options.review, so_far=options.so_far, with_seen=options.with_seen)
    print(json.dumps(values, indent=2, ensure_ascii=False) if options.json else unescaped(page).rstrip("\n"))


if __name__ == "__main__":
    sys.exit(main())
