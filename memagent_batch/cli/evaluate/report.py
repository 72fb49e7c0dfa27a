"""`memagent evaluate report`: one page with scores, charts and every failure's memory trace."""

import json

from memagent_batch.cli.command import StorageCommand
from memagent_batch.config.section import Text


class Report(StorageCommand):
    """Writes one page with scores, charts and every failure's memory trace; starts no engine."""

    command = "memagent evaluate report"
    examples = ("memagent evaluate report eval/", "memagent evaluate report eval/ --to report/")
    page = "docs/how-to/evaluation.md"
    words = ("output",)

    output: Text
    """The output of `evaluate run`: a folder or any fsspec URL."""
    to: str | None = None
    """Where report.html goes (default: OUTPUT/report)."""

    def run(self) -> None:
        """Writes the page."""
        from memagent_batch.evaluation.report.report import REPORT_FOLDER, write_report

        output = self.locate(self.output)
        target = self.locate(self.to) if self.to else output / REPORT_FOLDER
        print(json.dumps(write_report(output, target=target), indent=2, ensure_ascii=False))
