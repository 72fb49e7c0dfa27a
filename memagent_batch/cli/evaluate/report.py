"""`memagent evaluate report`: one page with scores, charts and every failure's memory trace."""

import json
import sys
from collections.abc import Sequence
from functools import partial

from memagent_batch.cli.main import run_command
from memagent_batch.cli.options import Manual, OptionParser

MANUAL = Manual(
    command="memagent evaluate report",
    about="Writes one page with scores, charts and every failure's memory trace; starts no engine.",
    examples=("memagent evaluate report eval/", "memagent evaluate report eval/ --to report/"),
    page="docs/how-to/evaluation.md",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the page; returns the exit code."""
    return run_command(partial(_report, sys.argv[1:] if arguments is None else arguments))


def _report(arguments: Sequence[str]) -> None:
    parser = OptionParser(MANUAL)
    parser.add_argument("output", help="the output of `evaluate run`: a folder or any fsspec URL")
    parser.add_argument("--to", help="where report.html goes (default: OUTPUT/report)")
    parser.add_storage_options()
    options = parser.parse_args(arguments)
    from memagent_batch.evaluation.report.report import REPORT_FOLDER, write_report
    from memagent_batch.files.location import Location

    locate = partial(Location, storage_options=options.storage_options)
    output = locate(uri=options.output)
    target = locate(uri=options.to) if options.to else output / REPORT_FOLDER
    print(json.dumps(write_report(output, target=target), indent=2, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
