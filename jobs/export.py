"""`memagent export`: the rollouts table as files that another trainer reads: verl, TRL or SkyRL."""

import json
import sys
from collections.abc import Sequence
from functools import partial

from jobs.cli import run_command
from jobs.options import Manual, OptionParser
from memagent_batch.files.location import Location
from pipelines.export import BRIDGES, export

MANUAL = Manual(
    command="memagent export",
    about="Writes the rollouts that `memagent collect` gathered in the form that another trainer reads. Samples\n"
    "without an advantage (failed, or without a reward) are left out and counted.",
    examples=(
        "memagent export --rollouts rollouts/ --to verl --output for-verl/",
        "memagent export --rollouts s3://bucket/rollouts/ --to trl --output for-trl/",
    ),
    page="docs/how-to/training.md",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exports a rollouts table; returns the exit code."""
    return run_command(partial(_export, sys.argv[1:] if arguments is None else arguments))


def _export(arguments: Sequence[str]) -> None:
    parser = OptionParser(MANUAL)
    parser.add_argument("--rollouts", required=True, help="the output of `memagent collect`: a folder or fsspec URL")
    parser.add_argument("--to", required=True, help=f"the trainer: {', '.join(BRIDGES)}")
    parser.add_argument("--output", required=True, help="where to write: a folder or fsspec URL")
    parser.add_storage_options()
    options = parser.parse_args(arguments)
    locate = partial(Location, storage_options=options.storage_options)
    output = locate(uri=options.output)
    record = export(locate(uri=options.rollouts), output, to=options.to)
    print(json.dumps({"output": str(output), "to": record["to"], **record["counts"]}))


if __name__ == "__main__":
    sys.exit(main())
