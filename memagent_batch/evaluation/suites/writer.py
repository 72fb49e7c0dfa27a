"""The files of a suite: written as its samples are made, `suite.json` last."""

from collections.abc import Callable, Mapping
from typing import Any

from memagent_batch.errors import OutputError
from memagent_batch.evaluation.suites.schemas import (
    DOCUMENTS_FOLDER,
    QUESTIONS_FILE,
    SUITE_FILE,
    SUITE_FORMAT,
)
from memagent_batch.files.claims import claimed_record
from memagent_batch.files.errors import output_errors
from memagent_batch.files.json_files import write_json
from memagent_batch.files.location import Location

ASKED_ENTRY = "asked"
"""Entry of `suite.json` that says all that decides what is in a suite."""

Say = Callable[[str], None]
"""Shows a line of progress."""


def claim_suite(output: Location, asked: Mapping[str, Any]) -> bool:
    """Checks that a suite may be written here; returns whether it is there already, whole.

    Args:
        output: The suite's folder.
        asked: All that decides what is in the suite, as JSON gives it back.

    Raises:
        OutputError: the place holds another suite, half a suite, or something else; says what to do.
    """
    remedy = "delete them if they are of a suite that was not finished, or choose an empty folder"
    record = claimed_record(output, SUITE_FILE, layout=SUITE_FORMAT, remedy=remedy)
    if record is None:
        return False
    if record.get(ASKED_ENTRY) != asked:
        there = record.get(ASKED_ENTRY) or {}
        different = sorted(name for name in {*asked, *there} if asked.get(name) != there.get(name))
        raise OutputError(
            f"output: {output.uri} holds a suite that was made with other {', '.join(different)}; choose another "
            "folder, or delete this one"
        )
    return True


def write_suite_record(output: Location, record: Mapping[str, Any]) -> None:
    """Writes `suite.json`, which makes the suite whole."""
    write_json(output / SUITE_FILE, {"format": SUITE_FORMAT, **record})


def delete_unfinished(output: Location) -> None:
    """Removes the documents and questions of a suite that has no `suite.json`."""
    with output_errors(output.uri):
        (output / DOCUMENTS_FOLDER).delete()
        (output / QUESTIONS_FILE).delete()
