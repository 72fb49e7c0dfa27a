"""`memagent evaluate make | run | score | report`; `score` and `report` are here."""

import importlib
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

from jobs.cli import Main, run_command, run_named
from jobs.options import Manual, OptionParser

log = logging.getLogger(__name__)

SUBCOMMANDS = {
    "make": "writes a suite of documents and questions, at any list of lengths",
    "run": "reads a suite with one or several policies or models, and scores the answers",
    "score": "scores any answers table against a suite",
    "report": "draws the results of `run`: a page, pictures, and every failure's memory trace",
}
SCORE = Manual(
    command="memagent evaluate score",
    about="Scores any answers table against a suite.",
    examples=(
        "memagent evaluate score --answers eval/runs/overwrite/ --suite suite/",
        "memagent evaluate score --answers answers.parquet --suite suite/ --output scores.parquet --json",
    ),
    page="docs/how-to/evaluation.md",
)
REPORT = Manual(
    command="memagent evaluate report",
    about="Writes one page with scores, pictures and every failure's memory trace; starts no engine.",
    examples=("memagent evaluate report eval/", "memagent evaluate report eval/ --to report/"),
    page="docs/how-to/evaluation.md",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the subcommand that the first argument names; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    return run_named(arguments, SUBCOMMANDS, command="memagent evaluate", main_of=_main_of)


def add_suite_options(parser: OptionParser) -> None:
    """Adds the suite, its format, and which text is scored."""
    from memagent_batch.domain.scores import ScoreOn
    from memagent_batch.evaluation.suites.foreign import ForeignFormat

    parser.add_argument(
        "--suite",
        metavar="PATH",
        required=True,
        help="folder of `evaluate make`, or files of a foreign suite (required)",
    )
    parser.add_argument(
        "--format", choices=[*ForeignFormat], help="format of a foreign suite (default: by its records)"
    )
    parser.add_argument(
        "--score-on",
        choices=[*ScoreOn],
        default=ScoreOn.METRIC,
        help="score the whole response, the answer taken out of it, or what each metric's authors score: the response "
        "by `all` and `any` (RULER), the answer by the others (default: metric)",
    )


def _main_of(name: str) -> Main:
    if name in {"score", "report"}:
        command = _score if name == "score" else _report
        return lambda arguments: run_command(partial(command, arguments))
    main_: Main = importlib.import_module(f"jobs.evaluate_{name}").main
    return main_


def _score(arguments: Sequence[str]) -> None:
    options = _score_parser().parse_args(arguments)
    from memagent_batch.domain.scores import ScoreOn
    from memagent_batch.evaluation.score_table import score_table
    from memagent_batch.evaluation.scoring import score_run, summarise
    from memagent_batch.evaluation.suites.foreign import ForeignFormat
    from memagent_batch.files.location import Location

    locate = partial(Location, storage_options=options.storage_options)
    scored = score_run(
        locate(uri=options.answers),
        suite=locate(uri=options.suite),
        foreign_format=ForeignFormat(options.format) if options.format else None,
        variant=options.variant,
        score_on=ScoreOn(options.score_on),
    )
    if options.output:
        from memagent_batch.files.parquet import parquet_bytes

        locate(uri=options.output).write_bytes(parquet_bytes(scored.scores))
    if options.json:
        print(json.dumps([asdict(cell) for cell in summarise(scored.scores)], indent=2, ensure_ascii=False))
    else:
        print(score_table(scored.scores))
    if scored.num_strangers:
        log.warning(f"left out: {scored.num_strangers} answers to questions that the suite does not ask")


def _score_parser() -> OptionParser:
    parser = OptionParser(SCORE)
    parser.add_argument(
        "--answers",
        required=True,
        help="output of a run, or Parquet or Arrow files with the columns document_id, question_id and answer",
    )
    add_suite_options(parser)
    parser.add_argument("--variant", default="answers", help="name of what is scored (default: answers)")
    parser.add_argument("--output", help="file to write the scores to, one row for each reading, as Parquet")
    parser.add_argument("--json", action="store_true", help="print the cells as JSON")
    parser.add_storage_options()
    return parser


def _report(arguments: Sequence[str]) -> None:
    parser = OptionParser(REPORT)
    parser.add_argument("output", help="the output of `evaluate run`: a folder or any fsspec URL")
    parser.add_argument("--to", help="where report.html and its pictures go (default: OUTPUT/report)")
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
