"""`memagent evaluate score`: scores any answers table against a suite."""

import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

from memagent_batch.cli.evaluate.suite_options import add_suite_options
from memagent_batch.cli.main import run_command
from memagent_batch.cli.options import Manual, OptionParser

log = logging.getLogger(__name__)

MANUAL = Manual(
    command="memagent evaluate score",
    about="Scores any answers table against a suite.",
    examples=(
        "memagent evaluate score --answers eval/runs/overwrite/ --suite suite/",
        "memagent evaluate score --answers answers.parquet --suite suite/ --output scores.parquet --json",
    ),
    page="docs/how-to/evaluation.md",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the scores; returns the exit code."""
    return run_command(partial(_score, sys.argv[1:] if arguments is None else arguments))


def _score(arguments: Sequence[str]) -> None:
    options = _score_parser().parse_args(arguments)
    from memagent_batch.domain.scoring.scores import ScoreOn
    from memagent_batch.evaluation.measures import measure
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
        cells = [asdict(cell) for cell in summarise(scored.scores)]
        measures = [asdict(each) for each in measure(scored.scores)]
        print(json.dumps({"cells": cells, "measures": measures}, indent=2, ensure_ascii=False))
    else:
        print(score_table(scored.scores))
    if scored.num_strangers:
        log.warning(f"left out: {scored.num_strangers} answers to questions that the suite does not ask")


def _score_parser() -> OptionParser:
    parser = OptionParser(MANUAL)
    parser.add_argument(
        "--answers",
        required=True,
        help="output of a run, or Parquet or Arrow files with the columns document_id, question_id and answer",
    )
    add_suite_options(parser)
    parser.add_argument("--variant", default="answers", help="name of what is scored (default: answers)")
    parser.add_argument("--output", help="file to write the scores to, one row for each reading, as Parquet")
    parser.add_argument("--json", action="store_true", help="print cells and measures as JSON")
    parser.add_storage_options()
    return parser


if __name__ == "__main__":
    sys.exit(main())
