"""The question list of a run, kept beside its log: actors and tasks on any node find it there after any restart."""

from collections import defaultdict

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.domain.policies.shared import question_list
from memagent_batch.storage.location import Location
from memagent_batch.storage.turn_log import parquet_bytes

ASKED_FOLDER = "log/questions"
LIST_HASH = "list_hash"
"""Column with the hash of the list that a question is read with; there only where lists are read in one pass."""


def write_asked(output: Location, questions: pa.Table, *, run_id: str) -> None:
    """Keeps the question list (`Plan.hashed_questions`) of a run."""
    (output / f"{ASKED_FOLDER}/{run_id}.parquet").write_bytes(parquet_bytes(questions))


def read_asked(output: Location, *, run_id: str) -> pa.Table:
    """The question list of a run; `readings` of its plan name rows of it."""
    place = output / f"{ASKED_FOLDER}/{run_id}.parquet"
    return pq.read_table(place.path, filesystem=place.fs)


def question_lists(questions: pa.Table) -> dict[str | None, str]:
    """The texts of the lists that are read in one pass each.

    What is asked of every document is one list, under None; what is bound to a document is another one, under its
    document_id, so that a question of one document changes nothing for the others.
    """
    lists: dict[str | None, list[str]] = defaultdict(list)
    for row in questions.select(["document_id", "question"]).to_pylist():
        lists[row["document_id"]].append(row["question"])
    return {document_id: question_list(texts) for document_id, texts in lists.items()}


def first_questions(asked: pa.Table) -> frozenset[str]:
    """Hashes of the questions that stand first in their lists: their readings count the shared turns."""
    firsts: dict[str | None, str] = {}
    for document_id, hash_ in zip(asked["document_id"].to_pylist(), asked["question_hash"].to_pylist(), strict=True):
        firsts.setdefault(document_id, hash_)
    return frozenset(firsts.values())
