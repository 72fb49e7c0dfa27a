"""`memagent review calibrate`: how sure a "no" must be, by labels, to need no second look."""

import json
import sys
from collections.abc import Sequence
from functools import partial

from memagent_batch.cli.main import run_command
from memagent_batch.cli.options import Manual, OptionParser, output_of
from memagent_batch.errors import SettingsError

MANUAL = Manual(
    command="memagent review calibrate",
    about="Learns from the labels of a review (--purpose develop) how sure a no must be, so that what is answered by\n"
    "yes or looked at again holds the wanted share of what is looked for. A run with escalate.target uses it.",
    examples=(
        "memagent review calibrate out/",
        "memagent review calibrate out/ --review clause-1a2b3c4d5e --recall 0.9",
    ),
    page="docs/how-to/escalation.md",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints what was learnt; returns the exit code."""
    return run_command(partial(_calibrate, sys.argv[1:] if arguments is None else arguments))


def _calibrate(arguments: Sequence[str]) -> None:
    parser = OptionParser(MANUAL)
    parser.add_argument("output", help="the output that was reviewed")
    parser.add_argument("--review", metavar="ID", help="the review (default: the only one)")
    parser.add_argument(
        "--recall", type=float, default=0.95, metavar="P", help="share to be found, at least (default: %(default)s)"
    )
    parser.add_argument(
        "--delta", type=float, default=0.05, metavar="P", help="how often it may be missed (default: %(default)s)"
    )
    parser.add_storage_options()
    options = parser.parse_args(arguments)
    for name in ("recall", "delta"):
        if not 0 < getattr(options, name) < 1:
            raise SettingsError(f"--{name}: {getattr(options, name)} is no share; give more than 0, less than 1")
    from memagent_batch.flows.calibrate import calibrate
    from memagent_batch.review.calibration.threshold import Target

    output = output_of(options)
    learnt = calibrate(output, options.review, target=Target(recall=options.recall, delta=options.delta))
    print(json.dumps(learnt, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
