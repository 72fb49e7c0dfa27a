"""`memagent status`: what a running, finished or dead run has done, from its log and manifest alone."""

import json
import sys
from collections.abc import Sequence
from functools import partial

from jobs.cli import run_command
from jobs.options import Manual, OptionParser

MANUAL = Manual(
    command="memagent status",
    about="Shows what a running, finished or dead run has done, from its log and manifest alone.",
    examples=("memagent status --output out/", "memagent status --output s3://bucket/scan/"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the state as JSON; returns the exit code."""
    return run_command(partial(_status, sys.argv[1:] if arguments is None else arguments))


def _status(arguments: Sequence[str]) -> None:
    parser = OptionParser(MANUAL)
    parser.add_argument("--output", required=True, help="where the run writes: a folder or any fsspec URL")
    parser.add_storage_options()
    options = parser.parse_args(arguments)
    from memagent_batch.files.location import Location
    from memagent_batch.runs.state import read_state

    state = read_state(Location(uri=options.output, storage_options=options.storage_options))
    print(json.dumps(state, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
