"""CPU tasks before the engine: turn texts into tokens."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import TypedDict

import numpy as np
import pyarrow as pa

from memagent_batch.config.agent import AgentConfig
from memagent_batch.data.documents.data_files import why_unreadable
from memagent_batch.data.documents.document_index import CARRY_PREFIX
from memagent_batch.data.documents.formats.columnar import batch_records
from memagent_batch.data.documents.formats.records import ColumnKind, InputColumn, Presence
from memagent_batch.data.documents.stored import StoredDocuments
from memagent_batch.data.store.columns import arrow_schema
from memagent_batch.errors import DocumentError, InputError, RunFailedError
from memagent_batch.loop.addresses import text_hash
from memagent_batch.loop.texts.locators import LocatedRow
from memagent_batch.loop.texts.sentences import Sentences, split_sentences
from memagent_batch.loop.tokens.tokenizer import TokenisedText, Tokenizer
from memagent_batch.run.plan import CALL_COLUMN, WORK_COLUMNS
from memagent_batch.run.reading.agent import make_agent
from memagent_batch.run.reading.documents import chunk_breaks, planned_documents
from memagent_batch.run.wiring import make_tokenizer

TOKENISED = pa.schema(
    [
        pa.field("document_id", pa.string()),
        pa.field("document_hash", pa.string()),
        pa.field("token_ids", pa.large_list(pa.int32())),
        pa.field("token_chars", pa.large_list(pa.int64())),
        pa.field("num_chars", pa.int64()),
        pa.field("num_bytes", pa.int64()),
        pa.field("sentence_starts", pa.large_list(pa.int64())),
        pa.field("sentence_ends", pa.large_list(pa.int64())),
        pa.field("breaks", pa.large_list(pa.int64())),
        pa.field("error", pa.string()),
        *WORK_COLUMNS,
    ]
)
"""A document on its way to the reader: its tokens once, whatever the number of its questions. It has the places of its
sentences where evidence is asked for, and its breaks where chunks close at them."""

CALL = pa.schema([pa.field("documents", pa.large_list(pa.struct(list(TOKENISED))))])
"""What one call of a reader takes: a long document, or some small ones, since each call costs Ray Data some 7 ms.

Rows of a dataset have their carried columns behind the others."""

NO_TOKENS = TokenisedText(token_ids=np.empty(0, np.int32), token_chars=np.empty(0, np.int64))
NO_SENTENCES = Sentences()


def tokenise(
    batch: pa.Table,
    *,
    agent: AgentConfig,
    documents: StoredDocuments,
    splits: bool = False,
    tokenizer_sha256: str | None = None,
) -> Iterator[pa.Table]:
    """Ray Data UDF: a batch of planned documents in, rows of `CALL` out, one table each.

    A batch that `group_documents` has not grouped gives each document its own call.

    Args:
        batch: Documents with their places in the table `documents`.
        agent: What reads them.
        documents: The version of the table.
        splits: Whether documents have their sentences.
        tokenizer_sha256: Hash of the tokeniser that the run began with.

    Raises:
        RunFailedError: the tokeniser was edited since.
    """
    tokenizer = _require_tokenizer(agent, sha256=tokenizer_sha256)
    read = partial(_tokenised, tokenizer, splits=splits, agent=agent)
    work = batch.select(["document_id", "document_hash", "num_bytes", *WORK_COLUMNS.names]).to_pylist()
    calls = batch[CALL_COLUMN].to_pylist() if CALL_COLUMN in batch.schema.names else range(len(work))
    missing, waiting = Counter(calls), defaultdict(list)
    for stored in documents.read_texts(batch):
        call = calls[stored.row]
        waiting[call].append(read(work[stored.row], stored.text, parts=stored.parts))
        missing[call] -= 1
        if not missing[call]:
            yield _call(waiting.pop(call))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowColumns:
    """Where a row of a dataset has what is read."""

    document_id: str
    text: str
    carry: Sequence[str] = ()
    """Columns to carry into the answers, with their types."""

    def to_read(self) -> list[InputColumn]:
        """The columns in this order, as the readers of files take them."""
        return [
            InputColumn(name=self.document_id, kind=ColumnKind.IDENTIFIER, presence=Presence.EVERY),
            InputColumn(name=self.text, kind=ColumnKind.DOCUMENT, presence=Presence.SOME),
            *[InputColumn(name=name, kind=ColumnKind.CARRIED, presence=Presence.SOME) for name in self.carry],
        ]


def tokenise_rows(
    rows: pa.Table,
    *,
    agent: AgentConfig,
    columns: RowColumns,
    asked: Mapping[str | None, Sequence[int]],
    samples: int,
    splits: bool = False,
    tokenizer_sha256: str | None = None,
) -> Iterator[pa.Table]:
    """Ray Data UDF: rows that hold their texts in, rows of `CALL` out, one table for each document.

    `asked`: rows of the question list by the document that they are bound to; None for every document.

    Raises:
        InputError: a column is missing, an id is missing or twice in the block, or a value can't be used.
        RunFailedError: as `tokenise`.
    """
    tokenizer = _require_tokenizer(agent, sha256=tokenizer_sha256)
    read = partial(_tokenised, tokenizer, splits=splits, agent=agent)
    document_ids: set[str] = set()
    for batch in rows.to_batches():
        records = batch_records(batch, columns=columns.to_read(), where="a block of the dataset")
        for number, record in enumerate(records):
            document_id, text = str(record.values[0]), record.values[1]
            if document_id in document_ids:
                raise InputError(f"document_id {document_id!r} is there twice; give every row of the dataset its own")
            document_ids.add(document_id)
            reason = why_unreadable(text)
            questions = [*asked.get(None, ()), *asked.get(document_id, ())]
            work = {
                "document_id": document_id,
                "document_hash": "" if reason else text_hash(str(text)),
                "num_bytes": 0,
                "readings": [{"question": row, "sample": sample} for row, sample in product(questions, range(samples))],
                "turn_files": [],
                "follow_ups": [],
                "outcome_files": [],
            }
            row = _tokenised_row(work, error=DocumentError(reason)) if reason else read(work, str(text))
            for name in columns.carry:
                row = row.append_column(CARRY_PREFIX + name, batch[name].slice(number, 1))
            yield _call([row])


class CountedDocument(TypedDict):
    """What a plan shows of one document, and what a reading of it costs."""

    document_id: str
    num_bytes: int
    num_tokens: int
    num_readings: int
    num_chunks: int
    num_turns: int
    num_prompt_tokens: int
    num_completion_tokens: int
    min_prompt_tokens: int | None
    num_steps: int | None
    max_steps: int | None


COUNTED = arrow_schema(CountedDocument)


def count_tokens(batch: pa.Table, *, agent: AgentConfig, documents: StoredDocuments) -> pa.Table:
    """Ray Data UDF: a batch of planned documents in, length and cost of each out; no tokens are kept."""
    loaded = make_agent(agent)
    counted = [
        {
            "document_id": planned.document_id,
            "num_bytes": planned.num_bytes,
            "num_tokens": planned.document.num_tokens,
            "num_readings": len(planned.readings),
            **asdict(loaded.cost(planned.document)),
        }
        for call in tokenise(batch, agent=agent, documents=documents)
        for planned in planned_documents(call)
    ]
    return pa.Table.from_pylist(counted, schema=COUNTED)


def _require_tokenizer(agent: AgentConfig, *, sha256: str | None) -> Tokenizer:
    tokenizer = make_tokenizer(agent, sha256=sha256)
    if sha256 not in (None, tokenizer.sha256):
        raise RunFailedError(
            f"the tokeniser of {agent.tokenizer or agent.model!r} was edited since the run began, or another one lies "
            "on this node; put the same files on every node. The same command then begins with what is there"
        )
    return tokenizer


def _tokenised(
    tokenizer: Tokenizer,
    work: Mapping[str, object],
    text: str,
    *,
    parts: Sequence[LocatedRow] = (),
    splits: bool,
    agent: AgentConfig,
) -> pa.Table:
    try:
        tokens = tokenizer.encode_document(text)
    except DocumentError as error:
        return _tokenised_row(work, error=error)
    sentences = split_sentences(text) if splits else None
    chars = tokens.token_chars.data
    breaks = chunk_breaks(text, parts, token_chars=chars, agent=agent, sentences=sentences)
    return _tokenised_row(work, tokens=tokens, sentences=sentences or NO_SENTENCES, breaks=breaks, num_chars=len(text))


def _call(documents: Sequence[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(documents).combine_chunks().to_struct_array().chunk(0)
    return pa.table({"documents": pa.LargeListArray.from_arrays(pa.array([0, len(rows)], pa.int64()), rows)})


def _tokenised_row(
    work: Mapping[str, object],
    *,
    tokens: TokenisedText = NO_TOKENS,
    sentences: Sentences = NO_SENTENCES,
    breaks: Sequence[int] = (),
    num_chars: int = 0,
    error: DocumentError | None = None,
) -> pa.Table:
    columns = {
        **{name: pa.array([value], TOKENISED.field(name).type) for name, value in work.items()},
        "token_ids": _one_list(pa.array(tokens.token_ids)),
        "token_chars": _one_list(pa.array(tokens.token_chars)),
        "sentence_starts": _one_list(pa.array(sentences.starts, pa.int64())),
        "sentence_ends": _one_list(pa.array(sentences.ends, pa.int64())),
        "breaks": _one_list(pa.array(breaks, pa.int64())),
        "num_chars": pa.array([num_chars], pa.int64()),
        "error": pa.array([error and str(error)], pa.string()),
    }
    return pa.table({name: columns[name] for name in TOKENISED.names}, schema=TOKENISED)


def _one_list(values: pa.Array) -> pa.LargeListArray:
    return pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values)
