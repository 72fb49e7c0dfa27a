"""The summary of a run for people: what needs a look and why, what could not be read, what is gone, what it cost.

The site has it as text and HTML, to be mailed, and as JSON for programs.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypedDict

from memagent_batch.apps.pages.document_page import ReadingView
from memagent_batch.apps.pages.readings import INVALID, NEEDS, RunChanges, said_words
from memagent_batch.apps.templates.pages import brief
from memagent_batch.data.documents.document_index import SOURCE_REVIEW, SOURCE_UNREAD
from memagent_batch.data.store.turn_log.index import Row
from memagent_batch.run.comparison import AnswerChange
from memagent_batch.run.manifest import Manifest

SHOWN_ITEMS = 20
"""Documents of a list, and answers of a need, that the summary shows; it counts all."""
UNREAD_NEED = NEEDS.index("not all of its source was read")
SEVERAL_QUESTIONS = "several questions"
"""What the one item of a document that was not read says of several questions."""


class Item(TypedDict):
    """An answer that needs a look."""

    why: str
    """One of `NEEDS`."""
    document_id: str
    question: str
    value: str
    """The answer in a few words; of a failed reading why it failed."""
    before: str | None
    """The answer of the run before, where that is known and another one."""
    sentence: str | None
    page: str
    """The page that shows it, below the summary's folder."""


class Summary:
    """Takes the readings of a run one after another."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._num_signed = 0
        self._num_shown = 0
        self._items: dict[int, list[Item]] = {place: [] for place in range(len(NEEDS))}
        self._unread = _Documents(SOURCE_UNREAD)
        self._review = _Documents(SOURCE_REVIEW)
        self._accepted = _Documents(SOURCE_UNREAD)
        self._accepted_reasons: Counter[str] = Counter()

    def add(self, view: ReadingView, *, need: int, href: str) -> None:
        """Adds a reading; those of a document follow each other. One that is signed off needs no look any more."""
        self._review.add(view.answer)
        if view.accepted is None:
            self._unread.add(view.answer)
        elif self._accepted.add(view.answer):
            self._accepted_reasons[view.accepted] += 1
        if view.signed is not None:
            self._num_signed += 1
            return
        if need == len(NEEDS):
            return
        self._counts[need] += 1
        items = self._items[need]
        if need == UNREAD_NEED and items and items[-1]["document_id"] == view.answer["document_id"]:
            items[-1]["question"] = SEVERAL_QUESTIONS
            self._num_shown += 1
        elif len(items) < SHOWN_ITEMS:
            self._num_shown += 1
            why = f"{NEEDS[need]}: {view.signed_before}" if view.signed_before else NEEDS[need]
            items.append(_summary_item(view, why=why, href=href))

    def values(self, manifest: Manifest, *, changes: RunChanges, removed: Sequence[str]) -> dict[str, Any]:
        """What the summary says of a finished run, as JSON; `removed` are the first of the documents that are gone."""
        items = [item for place in range(len(NEEDS)) for item in self._items[place]]
        return {
            "format": "memagent-summary/1",
            "run_id": manifest["run_id"],
            "finished_at": manifest["finished_at"],
            "since": changes.since,
            "problem": changes.problem,
            "documents": manifest["changes"]["documents"],
            "readings": manifest["counts"],
            "read": manifest["changes"]["readings"]["read"],
            "needs": {NEEDS[place]: number for place, number in sorted(self._counts.items())},
            "num_needs": self._counts.total(),
            "num_shown": self._num_shown,
            "num_signed": self._num_signed,
            "memory_truncations": manifest.get("totals", {}).get("memory_truncations", 0),
            "items": items,
            "num_unread": self._unread.number,
            "unread": self._unread.shown,
            "accepted": dict(self._accepted_reasons.most_common()),
            "num_review": self._review.number,
            "review": self._review.shown,
            "num_removed": manifest["changes"]["documents"]["removed"],
            "removed": list(removed[:SHOWN_ITEMS]),
            "model": manifest["settings"]["model"],
            "seconds": manifest["seconds"],
            "spent": manifest.get("spent"),
            "cost": manifest.get("cost"),
        }


class _Documents:
    """Documents of whose source a column says something; the first of them are shown."""

    def __init__(self, column: str) -> None:
        self._column = column
        self._last = ""
        self.number = 0
        self.shown: dict[str, str] = {}

    def add(self, answer: Row) -> bool:
        """Takes a row of `answers`; whether its document is one more. Rows of a document follow each other."""
        text, document_id = answer.get(self._column), answer["document_id"]
        if not text or document_id == self._last:
            return False
        self._last = document_id
        self.number += 1
        if len(self.shown) < SHOWN_ITEMS:
            self.shown[document_id] = text
        return True


def _summary_item(view: ReadingView, *, why: str, href: str) -> Item:
    answer, change = view.answer, view.change
    said = said_words(answer) if answer["error_message"] or view.outcome == INVALID else view.value
    before = (change.value_before or change.before) if change and change.kind == AnswerChange.CHANGED else None
    return Item(
        why=why,
        document_id=answer["document_id"],
        question=answer["question"],
        value=brief(said),
        before=None if before is None else brief(before),
        sentence=brief(view.evidence[0]["text"] or "") or None if view.evidence else None,
        page=href,
    )
