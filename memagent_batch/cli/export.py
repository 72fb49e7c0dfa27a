"""`memagent export`: rollouts as files that another trainer reads; `memagent export answers`: for a spreadsheet."""

import json
import sys
from collections.abc import Sequence
from functools import partial

from memagent_batch.cli.main import run_command
from memagent_batch.cli.options import Manual, OptionParser
from memagent_batch.files.location import Location
from memagent_batch.flows.export import export
from memagent_batch.training.bridges import BRIDGES

MANUAL = Manual(
    command="memagent export",
    about="Writes the rollouts that `memagent collect` gathered as a Parquet file that another trainer reads. Samples\n"
    "without an advantage (failed, or without a reward) are left out and counted. `memagent export answers` writes\n"
    "the answers of a scan as CSV or XLSX.",
    examples=(
        "memagent export --rollouts rollouts/ --to verl --output verl.parquet",
        "memagent export --rollouts s3://bucket/rollouts/ --to trl --output trl.parquet",
    ),
    page="docs/how-to/other-trainers.md",
)
ANSWERS_MANUAL = Manual(
    command="memagent export answers",
    about="Writes the answers of the last finished run as CSV or XLSX, one row a reading. Text that a spreadsheet\n"
    "program would run as a formula is quoted. XLSX holds 1,048,575 answers, and 32,767 characters a cell: more\n"
    "answers are refused, and a longer text is cut with a note in its cell.",
    examples=(
        "memagent export answers out/ --to xlsx",
        "memagent export answers s3://bucket/scan/ --to csv --output answers.csv",
    ),
    page="docs/how-to/page.md",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exports a rollouts table, or answers; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["answers"]:
        return run_command(partial(_export_answers, arguments[1:]))
    return run_command(partial(_export, arguments))


def _export(arguments: Sequence[str]) -> None:
    parser = OptionParser(MANUAL)
    parser.add_argument("--rollouts", required=True, help="the output of `memagent collect`: a folder or fsspec URL")
    parser.add_argument("--to", required=True, help=f"the trainer: {', '.join(BRIDGES)}")
    parser.add_argument("--output", required=True, help="the Parquet file to write: a path or fsspec URL")
    parser.add_storage_options()
    options = parser.parse_args(arguments)
    locate = partial(Location, storage_options=options.storage_options)
    output = locate(uri=options.output)
    counts = export(locate(uri=options.rollouts), output, to=options.to)
    print(json.dumps({"output": str(output), "to": options.to, **counts}))


def _export_answers(arguments: Sequence[str]) -> None:
    from memagent_batch.flows.export_answers import export_answers
    from memagent_batch.pages.spreadsheets import SpreadsheetFormat

    parser = OptionParser(ANSWERS_MANUAL)
    parser.add_argument("run", metavar="OUTPUT", help="the output of `memagent answer`: a folder or any fsspec URL")
    parser.add_argument("--to", required=True, choices=list(SpreadsheetFormat), help="the format")
    parser.add_argument("--output", metavar="FILE", help="file to write (default: OUTPUT/export/answers.csv or .xlsx)")
    parser.add_storage_options()
    options = parser.parse_args(arguments)
    locate = partial(Location, storage_options=options.storage_options)
    run, to = locate(uri=options.run), SpreadsheetFormat(options.to)
    target = locate(uri=options.output) if options.output else run / f"export/answers.{to.value}"
    cells = export_answers(run, target, to=to)
    counts = {"rows": cells.num_rows, "cells_quoted": cells.num_quoted, "cells_cut": cells.num_cut}
    print(json.dumps({"file": str(target), **counts}))


if __name__ == "__main__":
    sys.exit(main())
