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
    about="Packs the record of an output into a zip archive: manifests, cards and plans of its runs, question lists,\n"
    "labels, samples and estimates of reviews. `memagent verify` checks the unpacked archive as far as it goes.",
    examples=("memagent bundle out/ --to scan.zip", "memagent bundle s3://bucket/scan/ --to scan.zip --with-tables"),
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
        "--with-tables", action="store_true", help="pack the tables too: answers, memories and evidence quote documents"
    )
    parser.add_storage_options()
    options = parser.parse_args(arguments)
    if not options.to.endswith(".zip"):
        raise SettingsError(f"--to: {options.to} does not end in .zip, the one format that is written; rename it")
    from memagent_batch.files.location import Location
    from memagent_batch.flows.bundle import bundle

    locate = partial(Location, storage_options=options.storage_options)
    packed = bundle(locate(uri=options.output), locate(uri=options.to), with_tables=options.with_tables)
    print(json.dumps(packed, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
