"""`memagent review import`: takes labels in."""

import json
import sys
from collections.abc import Sequence
from functools import partial

from memagent_batch.cli.main import run_command
from memagent_batch.cli.options import Manual, OptionParser

MANUAL = Manual(
    command="memagent review import",
    about="Takes labels in, from labels.csv files that the page or a spreadsheet saved: all rows or, where one is\n"
    "wrong, none. A label is never changed or lost; the same file twice changes nothing.",
    examples=(
        "memagent review import out/ labels-clause-1a2b3c4d5e-first.csv",
        "memagent review import s3://bucket/scan/ labels.csv --reviewer ada",
    ),
    page="docs/how-to/review.md",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Imports; returns the exit code."""
    return run_command(partial(_import, sys.argv[1:] if arguments is None else arguments))


def _import(arguments: Sequence[str]) -> None:
    parser = OptionParser(MANUAL)
    parser.add_argument("output", help="the output that the labels are of")
    parser.add_argument("sheets", nargs="+", metavar="labels.csv", help="the sheets: files or any fsspec URLs")
    parser.add_argument("--reviewer", metavar="NAME", help="who labelled, for rows that don't say")
    parser.add_storage_options()
    options = parser.parse_args(arguments)
    from memagent_batch.files.location import Location
    from memagent_batch.flows.review import import_labels

    locate = partial(Location, storage_options=options.storage_options)
    output, sheets = locate(uri=options.output), [locate(uri=uri) for uri in options.sheets]
    print(json.dumps(import_labels(output, sheets, reviewer=options.reviewer)))


if __name__ == "__main__":
    sys.exit(main())
