"""What of a file is not in the text: statuses of its parts as rows of `losses`, and losses in a line for a person."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memagent_batch.data.ingest.readers.converter import NOTE, PartStatus, Severity
from memagent_batch.data.ingest.readers.metadata_values import FAILURE, clean_text
from memagent_batch.data.ingest.tables import LossRow

NAMED_PLACES = 5
"""Places that a line names for each reason; the others are counted."""
JOIN = "; "
NOT_STATED_UNLESS = (Severity.UNREAD, Severity.UNCERTAIN)
"""Severities of losses with which nothing can be "not stated"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """A part of a document that a reader of files gave."""

    document_id: str
    locator: str
    text: str | None
    """None if it is failed, skipped or not read."""
    status: PartStatus
    reason: str | None = None
    """Why it is not ok, or what to know of its text."""
    reader: str | None = None
    """What read it, with its version; None if nothing did."""


@dataclass(slots=True, kw_only=True)
class FileDocument:
    """A document of a file: the file itself, or an attachment."""

    document_id: str
    parts: list[FilePart]
    content_hash: str | None = None
    """Of an attachment, SHA-256 of its bytes, hex, as the process of its file says."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What its file says of itself, as the process of that file says; see `read_metadata`."""
    num_words: int = 0
    """Words that it contains, without those of its attachments; 0 where they are not counted."""
    num_missing: int = 0
    """Of those, words that are in no part."""


def find_losses(documents: Sequence[FileDocument]) -> dict[str, tuple[list[LossRow], float]]:
    """The losses of each document of a file, and the share of it that was read, by document id.

    The share is that of its parts and attachments, times that of the words of the file. What an attachment lacks, the
    document that it is attached to lacks too.
    """
    unread = {each.document_id: _unread_parts(each.parts) for each in documents}
    doubtful = {
        each.document_id: [part for part in each.parts if part.status.severity is Severity.UNCERTAIN]
        for each in documents
    }
    return {each.document_id: _losses_of(each, unread, doubtful) for each in documents}


def _unread_parts(parts: Sequence[FilePart]) -> list[FilePart]:
    """The parts that were not read. A blank page is read, a document of nothing but blanks is not."""
    is_blank = all(part.status is PartStatus.EMPTY for part in parts)
    unread = [part for part in parts if part.status.severity is Severity.UNREAD]
    return unread if is_blank else [part for part in unread if part.status is not PartStatus.EMPTY]


def _losses_of(
    document: FileDocument,
    unread: Mapping[str, Sequence[FilePart]],
    doubtful: Mapping[str, Sequence[FilePart]],
) -> tuple[list[LossRow], float]:
    document_id = document.document_id
    attached = {name: lost for name, lost in unread.items() if name.startswith(f"{document_id}/")}
    parts = [part for part in document.parts if part.status is not PartStatus.MISSED]
    is_one = len(document.parts) == 1
    notes = [part for part in parts if part.status is PartStatus.OK and part.reason]
    losses = [
        _loss(part, place=None if is_one else part.locator) for part in (*unread[document_id], *doubtful[document_id])
    ]
    for name, lost in attached.items():
        place = f"attachment {name.removeprefix(f'{document_id}/')}"
        losses += {(part.status, part.reason): _loss(part, place=place) for part in (*lost, *doubtful[name])}.values()
    losses += [_loss(part, place=None if is_one else part.locator) for part in notes]
    failure = clean_text(document.metadata.get(FAILURE))
    if failure and not unread[document_id]:  # else the file is damaged, and that is said already
        losses.append({"kind": NOTE, "severity": Severity.FORMAT.value, "place": None, "detail": failure})
    num_parts = len(parts) + len(attached)
    num_unread = sum(part.status is not PartStatus.MISSED for part in unread[document_id])
    num_unread += sum(map(bool, attached.values()))
    words_read = 1 - document.num_missing / document.num_words if document.num_words else 1.0
    return losses, words_read * (num_parts - num_unread) / num_parts


def _loss(part: FilePart, *, place: str | None) -> LossRow:
    return {
        "kind": part.status.loss_kind,
        "severity": part.status.severity.value,
        "place": place,
        "detail": part.reason or "nothing is in it",
    }


def describe_losses(
    losses: Iterable[Mapping[str, Any]], *, severities: Collection[str] = NOT_STATED_UNLESS
) -> str | None:
    """Losses of some severities in a line for a person: each reason once, with its places; None if there are none."""
    places: dict[str, list[str]] = {}
    for loss in losses:
        if loss["severity"] in severities:
            why = loss["detail"] if loss["kind"] == NOTE else f"{loss['kind']}: {loss['detail']}"
            places.setdefault(why, []).append(loss["place"] or "")
    return JOIN.join(f"{why}{_in_brackets(each)}" for why, each in places.items()) or None


def _in_brackets(places: Sequence[str]) -> str:
    """The first places in brackets; nothing if none has a name."""
    named = ", ".join(filter(None, places[:NAMED_PLACES]))
    more = f" and {len(places) - NAMED_PLACES:,} more" if len(places) > NAMED_PLACES else ""
    return f" ({named}{more})" if named else ""


def sum_up_losses(losses: Iterable[LossRow]) -> list[LossRow]:
    """Losses of several documents with each kind and reason once."""
    summed: dict[tuple[str, str, str], list[str]] = {}
    for loss in losses:
        summed.setdefault((loss["kind"], loss["severity"], loss["detail"]), []).append(loss["place"] or "")
    return [
        {"kind": kind, "severity": severity, "place": _in_brackets(places).strip(" ()") or None, "detail": detail}
        for (kind, severity, detail), places in summed.items()
    ]
