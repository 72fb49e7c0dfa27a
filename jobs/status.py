"""`memagent status`: what a running, finished or dead run has done, from its log and manifest alone."""

import json
import sys
from collections.abc import Sequence
from functools import partial

from jobs.arguments import run_command
from jobs.options import OptionParser


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the state as JSON; returns the exit code."""
    return run_command(partial(_status, sys.argv[1:] if arguments is None else arguments))


def _status(arguments: Sequence[str]) -> None:
    options = OptionParser(prog="memagent status", description=__doc__)
    options.add_argument("--output", required=True, help="where the run writes: a folder or any fsspec URL")
    options.add_storage_options()
    known = options.parse_args(arguments)
    from memagent_batch.files.location import Location
    from memagent_batch.runs.state import read_state

    storage_options = known.storage_options
    state = read_state(Location(uri=known.output, storage_options=storage_options))
    print(json.dumps(state, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
