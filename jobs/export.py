"""`memagent export`: the rollouts table as files that another trainer reads: verl, TRL or SkyRL."""

import json
import sys
from collections.abc import Sequence
from functools import partial

from jobs.arguments import run_command
from jobs.options import OptionParser
from memagent_batch.files.location import Location
from pipelines.export import BRIDGES, export

DESCRIPTION = """Writes the rollouts that `memagent collect` gathered in the form that another trainer reads. Samples
without an advantage (failed, or without a reward) are left out and counted."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exports a rollouts table; returns the exit code."""
    return run_command(partial(_export, sys.argv[1:] if arguments is None else arguments))


def _export(arguments: Sequence[str]) -> None:
    options = OptionParser(prog="memagent export", description=DESCRIPTION)
    options.add_argument("--rollouts", required=True, help="the output of `memagent collect`: a folder or fsspec URL")
    options.add_argument("--to", required=True, help=f"the trainer: {', '.join(BRIDGES)}")
    options.add_argument("--output", required=True, help="where to write: a folder or fsspec URL")
    options.add_storage_options()
    known = options.parse_args(arguments)
    storage_options = known.storage_options
    rollouts, output = (Location(uri=uri, storage_options=storage_options) for uri in (known.rollouts, known.output))
    record = export(rollouts, output, to=known.to)
    print(json.dumps({"output": str(output), "to": record["to"], **record["counts"]}))


if __name__ == "__main__":
    sys.exit(main())
