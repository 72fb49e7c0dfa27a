"""Reads the turns of readings from the turn log, where they are found by their prompts."""

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.data.store.database import on_disk
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.files import LOG_THREADS, read_log_files
from memagent_batch.data.store.turn_log.index import ReadingKey
from memagent_batch.data.store.turn_log.rows import TURN_LOG, OutcomeRow, TurnRow

SORTED_ROWS = 16_384
"""Rows that are sorted at once, some 40 MB: more at once are fewer parts for each reading."""

KEY_COLUMNS = [
    *("run_id", "document_hash", "question_hash", "sample", "fingerprint"),
    *("path", "kind", "prompt_hash", "turn_hash"),
]
"""What finds a turn, and decides which of several rows counts."""


@dataclass(frozen=True, slots=True)
class LoggedTurn:
    """Where the row of a turn is. A row is made when it is asked for: as Python values its tokens take 40 kB."""

    row_at: Callable[[int], TurnRow]
    number: int
    run_id: str
    document_hash: str
    path: str
    kind: str
    prompt_hash: str
    turn_hash: str

    @property
    def row(self) -> TurnRow:
        """The row."""
        return self.row_at(self.number)


class LoggedTurns:
    """The logged turns of one question and sample under one fingerprint: of one text, or of versions of a document.

    Of several rows that fit, those of the last run come first, and of one run that with the lowest hash: no clock
    decides.
    """

    def __init__(self, turns: Iterable[LoggedTurn] = ()) -> None:
        by_hash = sorted(turns, key=lambda turn: turn.turn_hash)
        self._turns = sorted(by_hash, key=lambda turn: turn.run_id, reverse=True)

    def __len__(self) -> int:
        return len(self._turns)

    def find(
        self, *, kind: str, prompt_hash: str, document_hash: str, path: str, is_sampled: bool = False
    ) -> Iterator[TurnRow]:
        """Rows of turns of this kind with this prompt, those of this text and path first.

        The draws of sampled turns have seeds made of text and path: no other row fits these.
        """
        turns = self._by_prompt.get((kind, prompt_hash), ())
        for is_same_text, is_same_path in ((True, True), (True, False), (False, True), (False, False)):
            if is_sampled and not (is_same_text and is_same_path):
                return
            for turn in turns:
                if ((turn.document_hash == document_hash), (turn.path == path)) == (is_same_text, is_same_path):
                    yield turn.row

    @cached_property
    def _by_prompt(self) -> dict[tuple[str, str], list[LoggedTurn]]:
        turns = defaultdict(list)
        for turn in self._turns:
            turns[turn.kind, turn.prompt_hash].append(turn)
        return turns

    def of_outcome(self, outcome: OutcomeRow) -> "LoggedTurns":
        """The turns that a reading had which ended so.

        Other attempts may have written something else, asked other turns, or gone on later: theirs are left out.
        """
        hashes = set(outcome["turn_hashes"] or ())
        turns: dict[str, LoggedTurn] = {}
        for turn in self._turns:
            if turn.turn_hash in hashes and turn.run_id <= outcome["run_id"]:
                turns.setdefault(turn.turn_hash, turn)
        return LoggedTurns(turns.values())

    def by_path(self) -> dict[str, TurnRow]:
        """Rows by turn path, each the last one."""
        return {turn.path: turn.row for turn in reversed(self._turns)}


def read_turns(
    output: Location,
    files: Iterable[str],
    *,
    fingerprints: Collection[str],
    document_hashes: Sequence[str],
    with_tokens: bool = True,
) -> dict[str, dict[ReadingKey, LoggedTurns]]:
    """The turns of these texts in these files, by fingerprint and reading.

    Rows are of `TURN_LOG`, and stay Arrow until they are asked for. Without tokens, `num_tokens` stands for token_ids
    and logprobs, which take most room, and rows are decoded at once.
    """
    names = [name for name in TURN_LOG.names if with_tokens or name not in ("logprobs", "menu_logprobs")]
    tables = read_log_files(output, files, columns=names, fingerprints=fingerprints, document_hashes=document_hashes)
    turns: dict[str, dict[ReadingKey, list[LoggedTurn]]] = {name: defaultdict(list) for name in fingerprints}
    for batch in (batch for table in tables for batch in table.to_batches()):
        for fingerprint, key, turn in _turns_in(batch, with_tokens=with_tokens):
            turns[fingerprint][key].append(turn)
    return {
        fingerprint: {key: LoggedTurns(of_reading) for key, of_reading in readings.items()}
        for fingerprint, readings in turns.items()
    }


class DocumentTurns:
    """The turns that the log holds of a document, in all its versions, on disk; each reading loads its own.

    As Python values they take some kilobytes each, and a long document with many questions has millions.
    """

    def __init__(
        self,
        output: Location,
        files: Sequence[str],
        *,
        fingerprints: Collection[str],
        document_hash: str,
        document_id: str | None = None,
    ) -> None:
        """Takes the turns of a text, whatever document it was read as, and those of the other versions of a document.

        `files` are the log files that hold some of them.
        """
        self._fingerprints, self._document_hash = fingerprints, document_hash
        tables = read_log_files(
            output,
            files,
            columns=TURN_LOG.names,
            fingerprints=fingerprints,
            document_hashes=[document_hash],
            document_id=document_id,
            num_threads=1 if output.is_local else LOG_THREADS,  # Arrow keeps 100 MB for each thread
        )
        batches = on_disk(_sorted_tables(tables), schema=TURN_LOG).to_batches()
        self._batches = [batch for batch in batches if batch.num_rows]
        self._places = _places_by_reading(self._batches)

    def of_reading(self, question_hash: str, sample: int) -> dict[str, LoggedTurns]:
        """The turns of a question and sample, by fingerprint; of those that many other versions have, one."""
        turns: dict[str, list[LoggedTurn]] = {name: [] for name in self._fingerprints}
        of_others = set[tuple[str, str]]()
        for number, start, stop in self._places.get((question_hash, sample), ()):
            for fingerprint, key, turn in _turns_in(self._batches[number].slice(start, stop - start)):
                if key[0] == self._document_hash or (fingerprint, turn.turn_hash) not in of_others:
                    turns[fingerprint].append(turn)
                if key[0] != self._document_hash:
                    of_others.add((fingerprint, turn.turn_hash))
        return {fingerprint: LoggedTurns(of_fingerprint) for fingerprint, of_fingerprint in turns.items()}


def _sorted_tables(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows of tables; in each table that comes out the rows of a question and sample are together."""
    waiting, num_rows = [TURN_LOG.empty_table()], 0
    for table in tables:
        waiting.append(table.cast(TURN_LOG))
        num_rows += table.num_rows
        if num_rows >= SORTED_ROWS:
            yield _by_reading(waiting)
            waiting, num_rows = [TURN_LOG.empty_table()], 0
    yield _by_reading(waiting)


def _by_reading(tables: list[pa.Table]) -> pa.Table:
    order = [("question_hash", "ascending"), ("sample", "ascending")]
    return pa.concat_tables(tables).sort_by(order).combine_chunks()


def _places_by_reading(batches: Iterable[pa.RecordBatch]) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
    """Batch, first row, and the row after the last one, of all parts of sorted batches by question and sample."""
    places: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
    for number, batch in enumerate(batches):
        questions = batch["question_hash"].dictionary_encode()
        samples = batch["sample"].to_numpy()
        changes = np.diff(questions.indices.to_numpy()).astype(bool) | np.diff(samples).astype(bool)
        starts = [0, *(np.flatnonzero(changes) + 1).tolist(), batch.num_rows]
        for start, stop in pairwise(starts):
            places[questions[start].as_py(), int(samples[start])].append((number, start, stop))
    return places


def _turns_in(batch: pa.RecordBatch, *, with_tokens: bool = True) -> Iterator[tuple[str, ReadingKey, LoggedTurn]]:
    """The turns in a batch with fingerprint and reading of each."""
    if with_tokens:
        row_at = partial(_decode_row, batch.schema.names, batch.columns)
    else:
        num_tokens = pc.list_value_length(batch["token_ids"])
        row_at = batch.drop_columns(["token_ids"]).append_column("num_tokens", num_tokens).to_pylist().__getitem__
    for number, key in enumerate(batch.select(KEY_COLUMNS).to_pylist()):
        turn = LoggedTurn(
            row_at=row_at,
            number=number,
            run_id=sys.intern(key["run_id"]),
            document_hash=sys.intern(key["document_hash"]),
            path=key["path"],
            kind=sys.intern(key["kind"]),
            prompt_hash=key["prompt_hash"],
            turn_hash=key["turn_hash"],
        )
        yield key["fingerprint"], (key["document_hash"], key["question_hash"], key["sample"]), turn


def _decode_row(names: Sequence[str], columns: Sequence[pa.Array], number: int) -> TurnRow:
    return cast("TurnRow", {name: column[number].as_py() for name, column in zip(names, columns, strict=True)})
