"""Unread sources that a job accepts: they are counted and shown, and change neither exit code nor what needs a look."""

import logging
from collections.abc import Iterator, Mapping, Sequence
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
    return next((rule["reason"] for rule in _rules(manifest) if _accepts(rule, row)), None)


def _rules(manifest: Manifest) -> Sequence[Mapping[str, str | None]]:
    rules: Sequence[Mapping[str, str | None]] = manifest["settings"].get("accepted_unread", ())
    return rules


def _accepts(rule: Mapping[str, str | None], row: Mapping[str, Any]) -> bool:
    if row.get(SOURCE_UNREAD) is None:
        return False
    is_named = any(_fits(row[name], rule["source"]) for name in ("source", "document_id"))
    return rule["source"] == row["source_hash"] or (is_named and _fits(row[SOURCE_UNREAD], rule["unread"]))


def _fits(text: str | None, pattern: str | None) -> bool:
    return text is not None and pattern is not None and (text == pattern or fnmatchcase(text, pattern))


def open_unread(output: Location, manifest: Manifest) -> UnreadCounts:
    """What was not read of the sources of a run and is not accepted; logs how many documents are.

    A rule that accepts nothing of the run is named in a warning: its source or text may be misspelled.

    Raises:
        OutputError: a table can't be read.
    """
    counts, rules = manifest["unread"], _rules(manifest)
    if not rules:
        return counts
    unread, accepted, needless = list[Mapping[str, Any]](), set[str](), dict(enumerate(rules, start=1))
    for row in _unread_rows(output, manifest) if counts["num_unread_documents"] else ():
        needless = {number: rule for number, rule in needless.items() if not _accepts(rule, row)}
        if accepted_reason(row, manifest) is not None:
            accepted.add(row["document_id"])
        else:
            unread.append(row)
    if accepted:
        log.info(f"{quantity(len(accepted), 'document')} not read to the end, as accepted_unread accepts")
    for number, rule in needless.items():
        what = rule["source"] if rule["unread"] is None else f"{rule['source']}: {rule['unread']}"
        log.warning(f"accepted_unread {number} matches no loss: {what!r}; copy it from the summary, or leave it out")
    return UnreadCounts(
        num_unread=sum(row["value_status"] == ValueStatus.NOT_READ for row in unread),
        num_unread_documents=len({row["document_id"] for row in unread}),
        num_unread_failed=sum(row["error_type"] == UNREAD_SOURCE for row in unread),
    )


def _unread_rows(output: Location, manifest: Manifest) -> Iterator[Mapping[str, Any]]:
    """The rows of `answers` whose source was not read to its end."""
    answers = open_run(output, manifest["run_id"]).dataset(ANSWERS_TABLE)
    for batch in answers.scanner(columns=list(_ACCEPTED_COLUMNS), batch_size=BATCH_ROWS).to_batches():
        yield from (row for row in batch.to_pylist() if row[SOURCE_UNREAD] is not None)
