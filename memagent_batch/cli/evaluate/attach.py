"""`memagent evaluate attach`: puts what an evaluation found of a reader onto the cards of its scan."""

import json
import sys
from collections.abc import Sequence
from functools import partial

from memagent_batch.cli.main import run_command
from memagent_batch.cli.options import Manual, OptionParser

MANUAL = Manual(
    command="memagent evaluate attach",
    about="Puts what an evaluation found onto the cards of a scan by the same reader.",
    examples=(
        "memagent evaluate attach eval/ --to out/",
        "memagent evaluate attach s3://bucket/eval/ --to s3://bucket/scan/",
    ),
    page="docs/how-to/record.md",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes what was found of each variant; returns the exit code."""
    return run_command(partial(_attach, sys.argv[1:] if arguments is None else arguments))


def _attach(arguments: Sequence[str]) -> None:
    parser = OptionParser(MANUAL)
    parser.add_argument("evaluation", help="the output of `evaluate run`: a folder or any fsspec URL")
    parser.add_argument("--to", metavar="OUTPUT", required=True, help="the output of `memagent answer`")
    parser.add_storage_options()
    options = parser.parse_args(arguments)
    from memagent_batch.evaluation.attach import attach
    from memagent_batch.files.location import Location

    locate = partial(Location, storage_options=options.storage_options)
    attached = attach(locate(uri=options.evaluation), output=locate(uri=options.to))
    print(json.dumps({"attached": attached}, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
