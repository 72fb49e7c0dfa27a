"""Signing readings off by the sheets that the page of the answers saved. No Ray."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypedDict

from memagent_batch.errors import InputError
from memagent_batch.pages.readings import table_rows
from memagent_batch.review.sheet import parse_sign_sheet
from memagent_batch.review.sign_offs import SignOff, append_sign_offs, current_sign_offs, reading_hash
from memagent_batch.runs.manifest import require_manifest
from memagent_batch.runs.tables import ANSWERS_FOLDER
from memagent_batch.store.errors import input_errors, output_errors
from memagent_batch.store.location import Location


class Signed(TypedDict):
    """What `memagent review sign` prints."""

    added: int
    """Sign-offs that the table did not have."""
    signed: int
    """Readings of the last run that are signed off now."""
    readings: int
    """Readings of the last run."""


def sign_sheets(output: Location, sheets: Sequence[Location]) -> Signed:
    """Takes the sign-offs of sheets in: all of them or, if one is wrong, none.

    Raises:
        InputError: a sheet or a row of it can't be taken; names the line.
        OutputError: no run has finished, or a table can't be read.
        StorageError: nothing was added.
    """
    rows: list[SignOff] = []
    for sheet in sheets:
        with input_errors(sheet.uri):
            data = sheet.read_bytes()
        rows += parse_sign_sheet(data, name=str(sheet), now=datetime.now(UTC))
    if not rows:
        raise InputError(f"{', '.join(map(str, sheets))}: no row is signed")
    with output_errors(output.uri):
        files = require_manifest(output)["files"][ANSWERS_FOLDER]
    added = append_sign_offs(output, rows)
    signed = current_sign_offs(output)
    hashes = [reading_hash(row) for name in files for batch in table_rows(output / name) for row in batch.to_pylist()]
    return Signed(added=added, signed=sum(each in signed for each in hashes), readings=len(hashes))
