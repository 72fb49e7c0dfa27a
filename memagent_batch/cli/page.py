"""`memagent page`: the answers of a finished run as a site without a server."""

import json
import sys
from collections.abc import Sequence
from functools import partial

from memagent_batch.cli.main import run_command
from memagent_batch.cli.options import Manual, OptionParser
from memagent_batch.errors import SettingsError

CONTEXT_CHARACTERS = 2_000
PAGE_FOLDER = "page"
"""Where the site goes below the output, by default."""

MANUAL = Manual(
    command="memagent page",
    about="Writes the answers of the last finished run as a site: a table of documents and questions, and a page for\n"
    "each document with its evidence and the memory's trace. It needs no server: open its index.html in a browser.",
    examples=("memagent page out/", "memagent page s3://bucket/scan/ --to s3://bucket/site/ --without-text"),
    page="docs/how-to/page.md",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the site; returns the exit code."""
    return run_command(partial(_page, sys.argv[1:] if arguments is None else arguments))


def _page(arguments: Sequence[str]) -> None:
    parser = OptionParser(MANUAL)
    parser.add_argument("output", help="the output of `memagent answer`: a folder or any fsspec URL")
    parser.add_argument("--to", metavar="PATH", help=f"folder of the site (default: OUTPUT/{PAGE_FOLDER})")
    parser.add_argument(
        "--context",
        type=int,
        metavar="N",
        default=CONTEXT_CHARACTERS,
        help="characters of the document that are shown before and behind evidence (default: %(default)s)",
    )
    parser.add_argument(
        "--without-text", action="store_true", help="show the evidence alone, without the text round it"
    )
    parser.add_argument("--yes", action="store_true", help="write the site also where it is larger than 1 GB")
    parser.add_storage_options()
    options = parser.parse_args(arguments)
    if options.context < 0:
        raise SettingsError(f"--context: {options.context} is below 0; give 0 or more characters")
    from memagent_batch.files.location import Location
    from memagent_batch.flows.page import page

    locate = partial(Location, storage_options=options.storage_options)
    output = locate(uri=options.output)
    written = page(
        output,
        locate(uri=options.to) if options.to else output / PAGE_FOLDER,
        context_chars=None if options.without_text else options.context,
        is_large_allowed=options.yes,
    )
    print(json.dumps(written, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
