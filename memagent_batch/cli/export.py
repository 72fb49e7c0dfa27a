"""`memagent export`: answers as a spreadsheet, or rollouts as one that another trainer reads."""

import json
from typing import Literal

from memagent_batch.cli.settings import OutputCommand
from memagent_batch.errors import SettingsError


class Export(OutputCommand):
    """Writes the answers of the last finished run as XLSX, one row a reading; or the rollouts of `memagent collect`
    as a Parquet file that another trainer reads.

    Text that a spreadsheet would run as a formula is quoted. Samples without an advantage are left out and counted.
    """

    command = "memagent export"
    examples = ("memagent export out/ --to xlsx", "memagent export rollouts/ --to verl --into verl.parquet")
    page = "docs/how-to/page.md"

    to: Literal["xlsx", "verl", "trl", "skyrl"]
    """`xlsx` for answers; the trainer for rollouts."""
    into: str | None = None
    """The file to write: a path or any fsspec URL (default for answers: OUTPUT/export/answers.xlsx)."""

    def run(self) -> None:
        if self.to == "xlsx":
            self._export_answers()
            return
        if self.into is None:
            raise SettingsError(f"--into: missing; name the Parquet file for {self.to}")
        from memagent_batch.training.export import export_rollouts

        output = self.locate(self.into)
        counts = export_rollouts(self.location, output, to=self.to)
        print(json.dumps({"output": str(output), "to": self.to, **counts}))

    def _export_answers(self) -> None:
        from memagent_batch.pages.spreadsheets import export_answers

        target = self.locate(self.into) if self.into else self.location / "export/answers.xlsx"
        print(json.dumps({"file": str(target), "rows": export_answers(self.location, target)}))
