"""`memagent evaluate score`: scores any answers table against a suite."""

import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

from jobs.arguments import run_command
from jobs.options import OptionParser

log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the scores; returns the exit code."""
    return run_command(partial(_score, sys.argv[1:] if arguments is None else arguments))


def _score(arguments: Sequence[str]) -> None:
    known = _options().parse_args(arguments)
    from memagent_batch.domain.scores import ScoreOn
    from memagent_batch.evaluation.score_table import score_table
    from memagent_batch.evaluation.scoring import score_run, summarise
    from memagent_batch.evaluation.suites.foreign import ForeignFormat
    from memagent_batch.files.location import Location

    foreign_format = ForeignFormat(known.format) if known.format else None
    locate = partial(Location, storage_options=known.storage_options)
    scored = score_run(
        locate(uri=known.answers),
        suite=locate(uri=known.suite),
        foreign_format=foreign_format,
        variant=known.variant,
        score_on=ScoreOn(known.score_on),
    )
    if known.output:
        from memagent_batch.files.parquet import parquet_bytes

        locate(uri=known.output).write_bytes(parquet_bytes(scored.scores))
    if known.json:
        print(json.dumps([asdict(cell) for cell in summarise(scored.scores)], indent=2, ensure_ascii=False))
    else:
        print(score_table(scored.scores))
    if scored.num_strangers:
        log.warning(f"left out: {scored.num_strangers} answers to questions that the suite does not ask")


def _options() -> OptionParser:
    from memagent_batch.domain.scores import ScoreOn
    from memagent_batch.evaluation.suites.foreign import ForeignFormat

    options = OptionParser(prog="memagent evaluate score", description=__doc__)
    options.add_argument(
        "--answers",
        required=True,
        help="output of a run, or Parquet or Arrow files with the columns document_id, question_id and answer",
    )
    options.add_argument("--suite", required=True, help="folder of `evaluate make`, or files of a foreign suite")
    options.add_argument("--format", choices=[*ForeignFormat], help="whose suite it is (default: told by its records)")
    options.add_argument(
        "--score-on",
        choices=[*ScoreOn],
        default=ScoreOn.METRIC,
        help="score the whole response, the answer taken out of it, or what each metric's authors score: the response "
        "by `all` and `any` (RULER), the answer by the others (default: metric)",
    )
    options.add_argument("--variant", default="answers", help="name of what is scored (default: answers)")
    options.add_argument("--output", help="file to write the scores to, one row for each reading, as Parquet")
    options.add_argument("--json", action="store_true", help="print the cells as JSON")
    options.add_storage_options()
    return options


if __name__ == "__main__":
    sys.exit(main())
