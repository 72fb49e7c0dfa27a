"""`memagent export`: answers as a spreadsheet, or rollouts as one that another trainer reads."""

import json
from typing import Literal

from memagent_batch.cli.settings import OutputCommand
from memagent_batch.errors import SettingsError


class Export(OutputCommand):
    """Writes the answers of the last finished run as XLSX or CSV with people's decisions, one row per reading; or the
    rollouts of `memagent collect` as a Parquet file for another trainer.
    """

    command = "memagent export"
    examples = (
        "memagent export out/ --to csv --into answers.csv",
        "memagent export rollouts/ --to verl --into verl.parquet",
    )
    pages = ("docs/how-to/page.md", "docs/how-to/other-trainers.md")

    to: Literal["xlsx", "csv", "verl", "trl", "skyrl"]
    """`xlsx` or `csv` for answers; the trainer for rollouts."""
    into: str | None = None
    """The file to write: a path or fsspec URL (default for answers: OUTPUT/export/answers.xlsx or .csv)."""

    def run(self) -> None:
        is_answers = self.to in {"xlsx", "csv"}
        ending = f".{self.to}" if is_answers else ".parquet"
        if self.into is not None and not self.into.endswith(ending):
            raise SettingsError(f"--into: {self.into!r} does not end in {ending}, as a file of --to {self.to} does")
        if is_answers:
            from memagent_batch.apps.pages.site import EXPORT_FOLDER
            from memagent_batch.apps.pages.spreadsheets import export_answers

            target = self.locate(self.into) if self.into else self.location / f"{EXPORT_FOLDER}/answers{ending}"
            print(json.dumps({"file": str(target), "rows": export_answers(self.location, target, to=self.to)}))
            return
        if self.into is None:
            raise SettingsError(f"--into: missing; name the Parquet file for {self.to}")
        from memagent_batch.apps.training.export import export_rollouts

        output = self.locate(self.into)
        counts = export_rollouts(self.location, output, to=self.to)
        print(json.dumps({"output": str(output), "to": self.to, **counts}))
