"""`memagent evaluate score`: scores any answers table against a suite."""

import json
import logging
from dataclasses import asdict

from pydantic import Field

from memagent_batch.cli.command import StorageCommand
from memagent_batch.cli.evaluate.suite import SuiteOptions
from memagent_batch.config.section import Text

log = logging.getLogger(__name__)


class Score(SuiteOptions, StorageCommand):
    """Scores any answers table against a suite."""

    command = "memagent evaluate score"
    examples = (
        "memagent evaluate score --answers eval/runs/overwrite/ --suite suite/",
        "memagent evaluate score --answers answers.parquet --suite suite/ --output scores.parquet --json",
    )
    page = "docs/how-to/evaluation.md"

    answers: Text
    """Output of a run, or Parquet or Arrow files with the columns document_id, question_id and answer."""
    variant: str = "answers"
    """Name of what is scored."""
    output: str | None = None
    """File to write the scores to, one row for each reading, as Parquet."""
    as_json: bool = Field(default=False, alias="json")
    """Print cells and measures as JSON."""

    def run(self) -> None:
        """Prints the scores."""
        from memagent_batch.evaluation.measures import measure, score_table
        from memagent_batch.evaluation.scoring import score_run, summarise

        scored = score_run(
            self.locate(self.answers),
            suite=self.locate(self.suite),
            foreign_format=self.format,
            variant=self.variant,
            score_on=self.score_on,
        )
        if self.output:
            from memagent_batch.files.parquet import parquet_bytes

            self.locate(self.output).write_bytes(parquet_bytes(scored.scores))
        if self.as_json:
            cells = [asdict(cell) for cell in summarise(scored.scores)]
            measures = [asdict(each) for each in measure(scored.scores)]
            print(json.dumps({"cells": cells, "measures": measures}, indent=2, ensure_ascii=False))
        else:
            print(score_table(scored.scores))
        if scored.num_unmatched:
            log.warning(f"left out: {scored.num_unmatched} answers to questions that the suite does not ask")
