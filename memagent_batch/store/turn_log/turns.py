"""Reads the turns of readings from the turn log: of several attempts the one that counts."""

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.store.database import on_disk
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import ReadingKey, read_log_files
from memagent_batch.store.turn_log.keys import LOG_THREADS, LogName
from memagent_batch.store.turn_log.rows import COMPLETION_COLUMNS, TURN_LOG, TurnRow

SORTED_ROWS = 16_384
"""Rows that are sorted at once, some 40 MB: more at once are fewer parts for each reading."""

TurnRank = tuple[bool, str, bool, float]
"""Order among turns of one path: a class, the run's id, whether its writer ended the reading, seconds in the run."""

SOURCE_COLUMNS = COMPLETION_COLUMNS | {"num_tokens"}
"""What a turn that was taken from an earlier version of its document has from there."""

KEY_COLUMNS = [
    "run_id",
    "document_hash",
    "question_hash",
    "sample",
    "fingerprint",
    "path",
    "kind",
    "prompt_hash",
    "finished_at",
    "reused_from",
    "line",
]
"""What finds a turn, and decides which of several rows counts."""

LINE = pa.field("line", pa.string(), nullable=False)
"""Column with run and writer of the file in which a row is."""
LINED_LOG = TURN_LOG.append(LINE)


@dataclass(frozen=True, slots=True)
class LoggedTurn:
    """Where the row of a turn is."""

    rows: Sequence[TurnRow]
    number: int
    kind: str
    prompt_hash: str
    reused_from: str | None = None
    source: "LoggedTurn | None" = None
    """The turn of an earlier version of the document that has the completion."""

    @property
    def row(self) -> TurnRow:
        """The row, with the completion."""
        row = self.rows[self.number]
        if self.source is None:
            return row
        taken = {name: value for name, value in self.source.row.items() if name in SOURCE_COLUMNS}
        return cast("TurnRow", {**row, **taken})


class LoggedRows(Mapping[str, TurnRow]):
    """Rows of one reading by turn path. A row is made when it is asked for: as Python values its tokens take 40 kB."""

    def __init__(self, turns: Mapping[str, LoggedTurn]) -> None:
        self._turns = turns

    def __getitem__(self, path: str) -> TurnRow:
        return self._turns[path].row

    def __iter__(self) -> Iterator[str]:
        return iter(self._turns)

    def __len__(self) -> int:
        return len(self._turns)

    def paths_by_prompt(self) -> dict[tuple[str, str], str]:
        """Paths by kind and hash of the prompt; of several with the same prompt the first one."""
        turns = self._turns
        return {(turns[path].kind, turns[path].prompt_hash): path for path in sorted(turns, reverse=True)}


class _ArrowRows(Sequence[TurnRow]):
    """Rows of a table, each decoded when it is asked for."""

    def __init__(self, table: pa.Table) -> None:
        self._columns = {name: table[name].combine_chunks() for name in table.schema.names if name != LINE.name}
        self._num_rows: int = table.num_rows

    def __getitem__(self, number: int) -> TurnRow:  # type: ignore[override]
        return cast("TurnRow", {name: column[number].as_py() for name, column in self._columns.items()})

    def __len__(self) -> int:
        return self._num_rows


def read_turns(
    output: Location,
    files: Iterable[str],
    *,
    fingerprints: Collection[str],
    document_hashes: Sequence[str],
    ended_by: Mapping[tuple[str, ReadingKey], str] = MappingProxyType({}),
    with_tokens: bool = True,
) -> dict[str, dict[ReadingKey, LoggedRows]]:
    """The turns of these documents in these files, by fingerprint, reading and turn path.

    Rows are of `TURN_LOG`, and stay Arrow until they are asked for. Without tokens, `num_tokens` stands for token_ids
    and logprobs, which take most room, and rows are decoded at once.
    Where a turn was logged twice, one is taken by a rule that no clock decides; see `_turn_rank`. A turn that was taken
    from an earlier version of its document has the completion of that one, if `files` name where it stands.
    `ended_by` has the `line` of what ended or closed a reading; turns of later runs had no part in it.
    """
    files = list(files)
    names = [name for name in TURN_LOG.names if with_tokens or name not in ("logprobs", "menu_logprobs")]
    read = partial(_read_files, output, files, columns=names, fingerprints=fingerprints)
    return _readings_of(
        read(document_hashes=document_hashes),
        fingerprints=fingerprints,
        ended_by=ended_by,
        read_sources=lambda versions: read(document_hashes=versions),
        with_tokens=with_tokens,
    )


class DocumentTurns:
    """The turns that the log holds of one document and its last versions, on disk; each reading loads its own.

    As Python values they take some kilobytes each, and a long document with many questions has millions.
    """

    def __init__(
        self,
        output: Location,
        files: Sequence[str],
        *,
        fingerprints: Collection[str],
        document_hashes: Sequence[str],
        ended_by: Mapping[tuple[str, ReadingKey], str],
    ) -> None:
        """Takes what `read_turns` takes."""
        self._fingerprints, self._document_hashes, self._ended_by = fingerprints, document_hashes, ended_by
        read = partial(
            _read_files,
            output,
            files,
            columns=TURN_LOG.names,
            fingerprints=fingerprints,
            num_threads=1 if output.is_local else LOG_THREADS,  # Arrow keeps some 100 MB for each thread
        )
        self._batches, versions = _sorted_on_disk(read(document_hashes=document_hashes))
        if sources := versions - {*document_hashes}:
            self._batches += _sorted_on_disk(read(document_hashes=sources))[0]
        self._places = _places_by_reading(self._batches)

    def of_reading(self, question_hash: str, sample: int) -> dict[str, dict[ReadingKey, LoggedRows]]:
        """The turns of a question and sample, as `read_turns` returns them."""
        places = self._places.get((question_hash, sample), [])
        rows = [self._batches[number].slice(start, stop - start) for number, start, stop in places]
        table = pa.Table.from_batches(rows, LINED_LOG)
        is_asked = pc.is_in(table["document_hash"], pa.array(self._document_hashes, pa.string()))
        return _readings_of(
            [table.filter(is_asked)],
            fingerprints=self._fingerprints,
            ended_by=self._ended_by,
            read_sources=lambda versions: [table],
            with_tokens=True,
        )


def _read_files(
    output: Location,
    files: Sequence[str],
    *,
    columns: list[str],
    fingerprints: Collection[str],
    document_hashes: Collection[str],
    num_threads: int = LOG_THREADS,
) -> Iterator[pa.Table]:
    """The tables of `read_log_files`, with the column `LINE`."""
    tables = read_log_files(
        output,
        files,
        columns=columns,
        fingerprints=fingerprints,
        document_hashes=document_hashes,
        num_threads=num_threads,
    )
    for file, table in zip(files, tables, strict=True):
        yield table.append_column(LINE, pa.repeat(pa.scalar(LogName.of(file).line), table.num_rows))


def _sorted_on_disk(tables: Iterable[pa.Table]) -> tuple[list[pa.RecordBatch], set[str]]:
    """The rows of tables in a temporary file, and the earlier versions of the document that have completions of them.

    In each batch the rows of a reading are together.
    """
    versions = set[str]()

    def sorted_tables() -> Iterator[pa.Table]:
        waiting, num_rows = [LINED_LOG.empty_table()], 0
        for table in tables:
            versions.update(pc.unique(table["reused_from"]).drop_null().to_pylist())
            waiting.append(table.cast(LINED_LOG))
            num_rows += table.num_rows
            if num_rows >= SORTED_ROWS:
                yield _by_reading(waiting)
                waiting, num_rows = [LINED_LOG.empty_table()], 0
        yield _by_reading(waiting)

    batches = on_disk(sorted_tables(), schema=LINED_LOG).to_batches()
    return [batch for batch in batches if batch.num_rows], versions


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


def _readings_of(
    tables: Iterable[pa.Table],
    *,
    fingerprints: Collection[str],
    ended_by: Mapping[tuple[str, ReadingKey], str],
    read_sources: Callable[[Collection[str]], Iterable[pa.Table]],
    with_tokens: bool,
) -> dict[str, dict[ReadingKey, LoggedRows]]:
    """The turns that count; `read_sources` gives rows of earlier versions of the document that have completions."""
    readings: dict[str, dict[ReadingKey, dict[str, LoggedTurn]]] = {name: defaultdict(dict) for name in fingerprints}
    ranks: dict[tuple[str, ReadingKey, str], TurnRank] = {}
    for table in tables:
        for row, turn in _turns_of(table, with_tokens=with_tokens):
            of, key = row["fingerprint"], (row["document_hash"], row["question_hash"], row["sample"])
            rank = _turn_rank(row, ended_by=ended_by.get((of, key)))
            place = (of, key, row["path"])
            if place not in ranks or rank > ranks[place]:
                ranks[place] = rank
                readings[of][key][row["path"]] = turn
    _fill_reused(readings, read_sources, with_tokens=with_tokens)
    return {of: {key: LoggedRows(turns) for key, turns in of_reader.items()} for of, of_reader in readings.items()}


def _turns_of(table: pa.Table, *, with_tokens: bool) -> Iterator[tuple[dict[str, Any], LoggedTurn]]:
    rows: Sequence[TurnRow] = _ArrowRows(table) if with_tokens else _without_tokens(table).to_pylist()
    for number, key in enumerate(table.select(KEY_COLUMNS).to_pylist()):
        yield (
            key,
            LoggedTurn(
                rows=rows,
                number=number,
                kind=sys.intern(key["kind"]),
                prompt_hash=key["prompt_hash"],
                reused_from=key["reused_from"],
            ),
        )


def _fill_reused(
    readings: Mapping[str, Mapping[ReadingKey, dict[str, LoggedTurn]]],
    read_sources: Callable[[Collection[str]], Iterable[pa.Table]],
    *,
    with_tokens: bool,
) -> None:
    """Gives each turn that was taken from an earlier version its completion; one whose file is gone is left out."""
    taken = [
        (turns, path, turn)
        for of_reader in readings.values()
        for turns in of_reader.values()
        for path, turn in turns.items()
        if turn.reused_from is not None
    ]
    if not taken:
        return
    versions = {turn.reused_from for _, _, turn in taken if turn.reused_from}
    asked: dict[tuple[object, ...], dict[str, LoggedTurn]] = defaultdict(dict)
    for table in read_sources(versions):
        own = table.filter(pc.is_null(table["reused_from"]))
        for key, turn in _turns_of(own, with_tokens=with_tokens):
            asked[_turn_place(key, document_hash=key["document_hash"])][key["path"]] = turn
    for turns, path, turn in taken:
        found = asked.get(_turn_place(turn.rows[turn.number], document_hash=turn.reused_from))
        if found is None:
            del turns[path]
        else:
            turns[path] = replace(turn, source=found.get(path) or found[min(found)])


def _turn_place(row: Mapping[str, Any], *, document_hash: str | None) -> tuple[object, ...]:
    """What names one row of the log: two attempts may have asked one turn, but not at the same microsecond.

    The path is not part of it: the same prompt may have another path in another version of the document.
    """
    names = ("fingerprint", "question_hash", "sample", "prompt_hash", "finished_at")
    return (document_hash, *[row[name] for name in names])


def _without_tokens(table: pa.Table) -> pa.Table:
    num_tokens = pc.list_value_length(table["token_ids"])
    return table.drop_columns(["token_ids", LINE.name]).append_column("num_tokens", num_tokens)


def _turn_rank(row: Mapping[str, Any], *, ended_by: str | None) -> TurnRank:
    """The rank of a turn: the last run up to the one that ended the reading; in it that writer, then the first turn.

    A run replays what earlier runs logged and asks for the rest, and so does a reader that replaces one which was cut
    off. The turns of highest rank are the ones that the reading used.
    """
    had_part = ended_by is None or row["run_id"] <= ended_by  # a line begins with its run's id
    return (had_part, row["run_id"], row["line"] == ended_by, -row["finished_at"].timestamp())
