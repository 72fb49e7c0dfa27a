"""Unread sources that a job accepts: they are counted and shown, and change neither exit code nor what needs a look."""

import logging
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from memagent_batch.data.documents.document_index import SOURCE_UNREAD, UNREAD_SOURCE
from memagent_batch.data.store.database import BATCH_ROWS
from memagent_batch.data.store.location import Location
from memagent_batch.loop.follow_ups.values import ValueStatus
from memagent_batch.loop.texts.shares import quantity
from memagent_batch.run.history import open_run
from memagent_batch.run.manifest import Manifest, UnreadCounts
from memagent_batch.run.tables import ANSWERS_TABLE

log = logging.getLogger(__name__)

_ACCEPTED_COLUMNS = ("document_id", "source", "source_hash", SOURCE_UNREAD, "value_status", "error_type")


def accepted_reason(row: Mapping[str, Any], manifest: Manifest) -> str | None:
    """Why the run accepts what was not read of the source of a row of `answers`; None if it does not, or all was."""
    unread = row.get(SOURCE_UNREAD)
    if unread is None:
        return None
    rules: Sequence[Mapping[str, str | None]] = manifest["settings"].get("accepted_unread", ())
    return next(
        (
            rule["reason"]
            for rule in rules
            if rule["source"] == row["source_hash"]
            or (_fits(row["source"], rule["source"]) and _fits(unread, rule["unread"]))
        ),
        None,
    )


def _fits(text: str, pattern: str | None) -> bool:
    return pattern is not None and (text == pattern or fnmatchcase(text, pattern))


def open_unread(output: Location, manifest: Manifest) -> UnreadCounts:
    """What was not read of the sources of a run and is not accepted; logs how many documents are.

    Raises:
        OutputError: a table can't be read.
    """
    counts = manifest["unread"]
    if not counts["num_unread_documents"] or not manifest["settings"].get("accepted_unread"):
        return counts
    unread, accepted = list[Mapping[str, Any]](), set[str]()
    answers = open_run(output, manifest["run_id"]).dataset(ANSWERS_TABLE)
    for batch in answers.scanner(columns=list(_ACCEPTED_COLUMNS), batch_size=BATCH_ROWS).to_batches():
        for row in batch.to_pylist():
            if accepted_reason(row, manifest) is not None:
                accepted.add(row["document_id"])
            elif row[SOURCE_UNREAD] is not None:
                unread.append(row)
    if accepted:
        log.info(f"{quantity(len(accepted), 'document')} not read to the end, as accepted_unread accepts")
    return UnreadCounts(
        num_unread=sum(row["value_status"] == ValueStatus.NOT_READ for row in unread),
        num_unread_documents=len({row["document_id"] for row in unread}),
        num_unread_failed=sum(row["error_type"] == UNREAD_SOURCE for row in unread),
    )
