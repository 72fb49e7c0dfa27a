"""`memagent bundle`: the record of an output, its reviews and its card as one archive for someone outside."""

import json
import sys
from collections.abc import Sequence
from functools import partial

from memagent_batch.cli.main import run_command
from memagent_batch.cli.options import Manual, OptionParser
from memagent_batch.errors import SettingsError

MANUAL = Manual(
    command="memagent bundle",
    about="Verifies the last run of an output and packs it into a zip archive: its record, the tables answers and\n"
    "evidence, reviews, a card, and a README of how to check them without memagent. Exit code 5 if something is wrong.",
    examples=("memagent bundle out/ --to scan.zip", "memagent bundle s3://bucket/scan/ --to scan.zip --without-tables"),
    page="docs/how-to/record.md",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the archive; returns the exit code."""
    return run_command(partial(_bundle, sys.argv[1:] if arguments is None else arguments))


def _bundle(arguments: Sequence[str]) -> None:
    parser = OptionParser(MANUAL)
    parser.add_argument("output", help="the output of `memagent answer`: a folder or any fsspec URL")
    parser.add_argument("--to", metavar="FILE.zip", required=True, help="the archive: a path or any fsspec URL")
    parser.add_argument(
        "--without-tables", action="store_true", help="leave out answers and evidence, which quote documents"
    )
    parser.add_argument(
        "--without-text", action="store_true", help="read no documents; the table `evidence` is then not verified"
    )
    parser.add_storage_options()
    options = parser.parse_args(arguments)
    if not options.to.endswith(".zip"):
        raise SettingsError(f"--to: {options.to} does not end in .zip, the one format that is written; rename it")
    from memagent_batch.files.location import Location
    from memagent_batch.flows.audit import bundle

    locate = partial(Location, storage_options=options.storage_options)
    packed = bundle(
        locate(uri=options.output),
        locate(uri=options.to),
        with_tables=not options.without_tables,
        with_text=not options.without_text,
    )
    print(json.dumps(packed, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
