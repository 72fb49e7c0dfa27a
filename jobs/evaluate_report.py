"""`memagent evaluate report`: one page with scores, pictures and every failure's memory trace; starts no engine."""

import json
import sys
from collections.abc import Sequence
from functools import partial

from jobs.arguments import run_command
from jobs.options import OptionParser


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints what was written as JSON; returns the exit code."""
    return run_command(partial(_report, sys.argv[1:] if arguments is None else arguments))


def _report(arguments: Sequence[str]) -> None:
    options = OptionParser(prog="memagent evaluate report", description=__doc__)
    options.add_argument("output", help="what `evaluate run` wrote: a folder or any fsspec URL")
    options.add_argument("--to", help="where report.html and its pictures go (default: OUTPUT/report)")
    options.add_storage_options()
    known = options.parse_args(arguments)
    from memagent_batch.evaluation.report.report import REPORT_FOLDER, write_report
    from memagent_batch.files.location import Location

    storage_options = known.storage_options
    output = Location(uri=known.output, storage_options=storage_options)
    target = Location(uri=known.to, storage_options=storage_options) if known.to else output / REPORT_FOLDER
    print(json.dumps(write_report(output, target=target), indent=2, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
