"""`memagent convert`: PDF, HTML, DOCX, e-mail, Markdown, text and ZIP files to a table of documents with locators."""

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial

from memagent_batch.cli.main import run_command
from memagent_batch.cli.options import Manual, OptionParser
from memagent_batch.config.job import ExecutorKind
from memagent_batch.convert.process.sandbox import Limits
from memagent_batch.errors import SettingsError
from memagent_batch.masking import shown

MANUAL = Manual(
    command="memagent convert",
    about="Converts PDF, HTML, DOCX, e-mail, Markdown, text and ZIP files to Parquet rows with locators: a page, a\n"
    "message, a section. Each file is converted in a process of its own, with limits. A file that can't be\n"
    "converted is a row that says why. The second run converts only new and changed files.",
    examples=(
        "memagent convert --documents contracts/ --output texts/",
        "memagent convert --documents s3://bucket/mail/ 's3://bucket/pdf/**/*.pdf' --output s3://bucket/texts/ "
        "--seconds 120",
    ),
    page="docs/how-to/convert.md",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Converts files; returns the exit code."""
    return run_command(partial(_convert, sys.argv[1:] if arguments is None else arguments))


def _convert(arguments: Sequence[str]) -> None:
    options = _parser().parse_args(arguments)
    from memagent_batch.flows.convert import ConvertJob, convert  # here, so that --help loads no reader

    limits = Limits(seconds=options.seconds, memory_bytes=options.memory_mib << 20)
    job = ConvertJob(
        documents=tuple(options.documents),
        output=options.output,
        converters=dict(map(_pair, options.converter)),
        allow_code=options.allow_code,
        limits=limits,
        file_bytes=options.file_mib << 20,
        retry_failed=options.retry_failed,
        max_failed_share=options.max_failed_share,
        executor=ExecutorKind(options.executor),
        storage_options=options.storage_options,
    )
    manifest = convert(job)
    print(json.dumps({"output": shown(job.output), **manifest["counts"]}))


def _parser() -> OptionParser:
    limits = Limits()
    parser = OptionParser(MANUAL)
    parser.add_argument(
        "--documents", required=True, nargs="+", metavar="PATH", help="files, folders or globs; paths or fsspec URLs"
    )
    parser.add_argument("--output", required=True, metavar="PATH", help="where to write: a folder or fsspec URL")
    parser.add_argument(
        "--converter",
        action="append",
        default=[],
        metavar="KIND=NAME",
        help="another converter for a kind (pdf, html, docx, email, markdown, text, zip) or an ending (.rtf): the name "
        "that an installed package gives it, or package.module:Class; can be repeated",
    )
    parser.add_argument(
        "--allow-code", action="store_true", help="allow --converter to name code of yours, which is then run"
    )
    _add_number(parser, "--seconds", kind=float, default=limits.seconds, text="time of one file's process")
    _add_number(
        parser, "--memory-mib", kind=int, default=limits.memory_bytes >> 20, text="memory of one file's process, MiB"
    )
    _add_number(parser, "--file-mib", kind=int, default=256, text="size from which a file is skipped, MiB")
    parser.add_argument("--retry-failed", action="store_true", help="convert files again that failed before")
    parser.add_argument(
        "--max-failed-share",
        type=_share_argument,
        default=1.0,
        metavar="NUMBER",
        help="end with exit code 4 where a larger share of the files failed, from 0 to 1 (default: 1)",
    )
    parser.add_argument(
        "--executor",
        choices=[kind.value for kind in ExecutorKind],
        default=ExecutorKind.AUTO.value,
        help="where files are converted: in this process (local), or by Ray; auto takes local for at most 100 files "
        "and 64 MiB (default: auto)",
    )
    parser.add_storage_options()
    return parser


def _add_number(parser: OptionParser, name: str, *, kind: type, default: float, text: str) -> None:
    metavar = "N" if kind is int else "NUMBER"
    parser.add_argument(
        name,
        type=partial(_above_zero, kind=kind),
        default=default,
        metavar=metavar,
        help=f"{text} (default: {default:g})",
    )


def _above_zero(text: str, *, kind: type) -> float:
    try:
        value: float = kind(text)
    except ValueError:
        value = 0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no {'whole ' if kind is int else ''}number above 0")
    return value


def _share_argument(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to 1")
    return value


def _pair(text: str) -> tuple[str, str]:
    kind, equals, name = text.partition("=")
    if not (kind and equals and name):
        raise SettingsError(f"--converter: {text!r} is not KIND=NAME, such as pdf=my_package.pdf:Mine")
    return kind.lower(), name


if __name__ == "__main__":
    sys.exit(main())
