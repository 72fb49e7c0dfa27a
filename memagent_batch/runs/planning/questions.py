"""The questions of a plan: the list and those beside the texts, with types, addresses and what closes them."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.domain.addresses import text_hash
from memagent_batch.domain.closing.answer_types import ValueType
from memagent_batch.errors import InputError
from memagent_batch.inputs.questions import type_fields, value_types
from memagent_batch.log.question_list import CLOSING_FINGERPRINT, with_hashes
from memagent_batch.reading.closing import Closing


class PlannedQuestions:
    """The question list of a plan, and what each document is asked."""

    def __init__(
        self,
        listed: pa.Table,
        documents: pa.Table,
        *,
        inline_type: ValueType | None,
        closing: Closing | None,
    ) -> None:
        """Adds to a question list (`QUESTION_SCHEMA`) the questions that stand beside the texts.

        Args:
            listed: The list.
            documents: The index of documents.
            inline_type: The type that questions beside the texts ask for.
            closing: What is asked after each answer; None for nothing, whatever types the questions have.
        """
        self.listed, self.inline_type, self.closing = listed, inline_type, closing
        self.table = _with_inline(listed, documents, value_type=inline_type)
        self.types: list[ValueType | None] = value_types(self.table)
        """The type that each question asks for."""
        of_type = {each: closing.of_type(each) for each in dict.fromkeys(self.types)} if closing else {}
        self._closings: list[str | None] = [of_type[each] for each in self.types] if of_type else []
        self.closing_turns: list[str] = closing.of_turns(self.types) if closing else []
        """Fingerprints under which the log keeps the closing turns of the plan."""
        self.are_closed = any(self._closings)
        """Whether something is asked after an answer."""
        hashed = with_hashes(self.table)
        if self.are_closed:
            hashed = hashed.append_column(CLOSING_FINGERPRINT, pa.array(self._closings, pa.string()))
        self.hashed: pa.Table = hashed
        """The list with the hashes of the addresses; `readings` name its rows."""
        self.hashes: list[str] = hashed["question_hash"].to_pylist()
        self.shared: list[int] = []
        """Rows of the list that are asked of every document."""
        self.bound: dict[str, list[int]] = defaultdict(list)
        """Rows of the list that are asked of one document, by document_id."""
        for row, document_id in enumerate(self.table["document_id"].to_pylist()):
            (self.shared if document_id is None else self.bound[document_id]).append(row)
        self._require_distinct()

    @property
    def closings(self) -> list[str]:
        """Fingerprints under which the log keeps what the closing turns of the plan bring."""
        return sorted({each for each in self._closings if each})

    def closing_of(self, row: int) -> str | None:
        """The fingerprint of what closes the readings of a question; None where nothing is asked after its answer."""
        return self._closings[row] if self._closings else None

    def turns_of_closings(self) -> dict[str, list[str]]:
        """Fingerprints of closing turns, by that under which the log keeps what they brought together."""
        if self.closing is None:
            return {}
        types = dict.fromkeys(self.types)
        of_types = {self.closing.of_type(each): self.closing.of_turns([each]) for each in types}
        return {fingerprint: turns for fingerprint, turns in of_types.items() if fingerprint}

    def keep_only(self, questions: Mapping[str, Collection[str]]) -> None:
        """Binds questions to the documents that are asked them again, and asks nothing else.

        Args:
            questions: Ids of the questions, by document_id.

        Raises:
            InputError: one of them is not in the list.
        """
        ids = self.table["question_id"].to_pylist()
        bound: dict[str, list[int]] = {}
        for document_id, wanted in questions.items():
            rows = [row for row in (*self.shared, *self.bound.get(document_id, ())) if ids[row] in wanted]
            if len(rows) < len(wanted):
                lacking = min(set(wanted).difference(ids[row] for row in rows))
                raise InputError(
                    f"again_where: it takes question {lacking!r} of document {document_id!r}, which is not asked here; "
                    "give the same questions as for again_from, or narrow the condition: question_id in ('...')"
                )
            bound[document_id] = rows
        self.shared, self.bound = [], defaultdict(list, bound)

    def _require_distinct(self) -> None:
        ids = self.table["question_id"].to_pylist()
        shared = {ids[row] for row in self.shared}
        for document_id, rows in self.bound.items():
            names = [ids[row] for row in rows]
            twice = shared.intersection(names) or {name for name, count in Counter(names).items() if count > 1}
            if twice:
                raise InputError(
                    f"question_id {min(twice)!r} is asked twice of document {document_id!r} (of every document and of "
                    "it alone, or in the list and beside its text); give one of them another question_id, or drop it"
                )


def _with_inline(questions: pa.Table, documents: pa.Table, *, value_type: ValueType | None) -> pa.Table:
    """Adds the questions that stand beside the texts, bound to their documents."""
    inline = documents.filter(pc.is_valid(documents["question"])).select(["document_id", "question"])
    if not inline.num_rows:
        return questions
    texts = inline["question"].to_pylist()
    added = pa.table(
        {
            "question_id": pa.array([f"q-{text_hash(text)[:12]}" for text in texts], pa.large_string()),
            "document_id": inline["document_id"],
            "question": inline["question"],
            "references": pa.nulls(len(texts), questions.schema.field("references").type),
            **{
                name: pa.array([value] * len(texts), questions.schema.field(name).type)
                for name, value in type_fields(value_type).items()
            },
        }
    ).cast(questions.schema)
    return pa.concat_tables([questions, added])
