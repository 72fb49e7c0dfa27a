"""The answers of a finished run as one file for a spreadsheet program: streams them to a local file, then moves it."""

from pathlib import Path
from tempfile import TemporaryDirectory

from memagent_batch.files.errors import output_errors
from memagent_batch.files.location import Location
from memagent_batch.pages.spreadsheets import SpreadsheetFormat, WrittenCells, write_spreadsheet
from memagent_batch.runs.manifest import require_manifest


def export_answers(output: Location, target: Location, *, to: SpreadsheetFormat) -> WrittenCells:
    """Writes the answers of the last finished run, whole or not at all; returns what became of the cells.

    Raises:
        OutputError: no run has finished, a table file is gone, or there are too many rows for the format.
        StorageError: the file can't be written.
    """
    with output_errors(output.uri):
        manifest = require_manifest(output)
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"answers.{to.value}"
        cells = write_spreadsheet(output, manifest, to=to, file=file)
        target.write_file(file)
    return cells
