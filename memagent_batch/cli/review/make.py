"""`memagent review make`: draws the sample, and writes what people label on."""

import json
import sys
from collections.abc import Sequence
from functools import partial

from memagent_batch.cli.main import run_command
from memagent_batch.cli.options import Manual, OptionParser, output_of
from memagent_batch.cli.review.asked_options import add_asked_options, check_asked
from memagent_batch.errors import SettingsError
from memagent_batch.review.labels.label import Purpose

MANUAL = Manual(
    command="memagent review make",
    about="Draws a sample of the last finished run, and writes a page and a sheet to label it on: OUTPUT/review/ID/.\n"
    "Labels that are there already count. After an import, say it again: it writes what a second person should read.",
    examples=(
        "memagent review make out/ --question clause --labels 750",
        "memagent review make out/ --question risk --by value_label --labels 1000",
    ),
    page="docs/how-to/review.md",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes the review; returns the exit code."""
    return run_command(partial(_make, sys.argv[1:] if arguments is None else arguments))


def _make(arguments: Sequence[str]) -> None:
    parser = OptionParser(MANUAL)
    add_asked_options(parser)
    purposes = [purpose.value for purpose in Purpose]
    parser.add_argument(
        "--purpose",
        choices=purposes,
        default=Purpose.VALIDATE.value,
        help="validate: to measure the scan; develop: to improve it by, on another sample (default: %(default)s)",
    )
    parser.add_argument(
        "--second",
        type=float,
        default=0.1,
        metavar="P",
        help="share that a second person reads too (default: %(default)s)",
    )
    parser.add_argument(
        "--without-page", action="store_true", help="write labels.csv alone: no page, and no text of a document"
    )
    options = parser.parse_args(arguments)
    if not 0 <= options.second <= 1:
        raise SettingsError(f"--second: {options.second} is no share; give 0 to 1")
    flagged = check_asked(options)
    from memagent_batch.flows.review import Asked, make_review
    from memagent_batch.review.sample.record import rule_of

    asked = Asked(
        question_id=options.question,
        rule=rule_of(flagged, by=options.by, unsure_below=options.unsure),
        labels=options.labels,
        seed=options.seed,
        purpose=Purpose(options.purpose),
        second_share=options.second,
        with_page=not options.without_page,
    )
    made = make_review(output_of(options), asked)
    print(json.dumps(made, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
