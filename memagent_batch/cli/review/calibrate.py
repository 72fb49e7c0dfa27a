"""`memagent review calibrate`: which answers need a second pass, so that the wanted share is found."""

import json
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from memagent_batch.cli.main import run_command
from memagent_batch.cli.options import Manual, OptionParser, output_of
from memagent_batch.errors import SettingsError

if TYPE_CHECKING:
    from memagent_batch.flows.calibrate import Calibration

MANUAL = Manual(
    command="memagent review calibrate",
    about="Says by the labels of a review (--purpose develop) how sure a no must be to stand: what is answered by yes\n"
    "or read again then holds the wanted share of what is looked for. Prints the condition for a second pass.",
    examples=(
        "memagent review calibrate out/ --question clause",
        "memagent review calibrate out/ --question clause --recall 0.9 --json",
    ),
    page="docs/how-to/second-pass.md",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the condition; returns the exit code."""
    return run_command(partial(_calibrate, sys.argv[1:] if arguments is None else arguments))


def _calibrate(arguments: Sequence[str]) -> None:
    parser = OptionParser(MANUAL)
    parser.add_argument("output", help="the output that was reviewed")
    parser.add_argument("--question", required=True, metavar="ID", help="question_id of the question")
    parser.add_argument("--review", metavar="ID", help="the review (default: the only one that fits)")
    parser.add_argument(
        "--recall", type=float, default=0.95, metavar="P", help="share to be found, at least (default: %(default)s)"
    )
    parser.add_argument(
        "--delta", type=float, default=0.05, metavar="P", help="how often it may be missed (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_storage_options()
    options = parser.parse_args(arguments)
    for name in ("recall", "delta"):
        if not 0 < getattr(options, name) < 1:
            raise SettingsError(f"--{name}: {getattr(options, name)} is no share; give more than 0, less than 1")
    from memagent_batch.flows.calibrate import calibrate
    from memagent_batch.review.calibration.threshold import Target

    target = Target(recall=options.recall, delta=options.delta)
    learnt = calibrate(output_of(options), options.question, review_id=options.review, target=target)
    print(json.dumps(learnt, indent=2, ensure_ascii=False) if options.json else _sentences(learnt))


def _sentences(learnt: "Calibration") -> str:
    """What the labels say, and the condition."""
    labels = f"by {learnt['num_labels']:,} labels, {learnt['num_positives']:,} of them positive"
    if learnt["num_positives"] < learnt["fewest_positives"]:
        labels += f" (fewer than {learnt['fewest_positives']:,} can't show less than reading every no again)"
    return (
        f"a no with confidence <= {learnt['up_to']:.4g} is read again: this holds recall {learnt['recall']:g} "
        f"with delta {learnt['delta']:g}, {labels}\n"
        f"{learnt['read_again']:,} of {learnt['readings']:,} readings fulfil the condition:\n"
        f'--where "{learnt["where"]}"'
    )


if __name__ == "__main__":
    sys.exit(main())
