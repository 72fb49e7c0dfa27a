"""`memagent partial`: the answers that a running or stopped run has so far, beside its tables."""

import json
import sys
from collections.abc import Sequence
from functools import partial

from memagent_batch.cli.main import run_command
from memagent_batch.cli.options import Manual, OptionParser, output_of

MANUAL = Manual(
    command="memagent partial",
    about="Writes the answers that a running or stopped run has so far to `partial/`, marked as incomplete.\n"
    "The tables and the run stay as they are.",
    examples=("memagent partial --output out/", "memagent partial --output s3://bucket/scan/"),
    page="docs/how-to/nightly-scans.md",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the answers and prints how many they are, as JSON; returns the exit code."""
    return run_command(partial(_partial, sys.argv[1:] if arguments is None else arguments))


def _partial(arguments: Sequence[str]) -> None:
    parser = OptionParser(MANUAL)
    parser.add_argument("--output", required=True, help="where the run writes: a folder or any fsspec URL")
    parser.add_storage_options()
    options = parser.parse_args(arguments)
    from memagent_batch.runs.partial import write_partial

    record = write_partial(output_of(options))
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    sys.exit(main())
