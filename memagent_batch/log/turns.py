"""Reads the turns of readings from the turn log: of several attempts the one that counts."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.files.location import Location
from memagent_batch.log.files import ReadingKey, log_line, read_log_files
from memagent_batch.log.schemas import SPAN, TURN_LOG, TurnRow

TurnRank = tuple[bool, str, bool, float]
"""Order among turns of one path: a class, the run's id, whether its writer ended the reading, seconds in the run."""

PLACE_COLUMNS = (
    "run_id",
    "document_hash",
    "path",
    "turn",
    "kind",
    "writes",
    *[field.name for field in SPAN],
    "held_from",
    "memory_after",
)
"""What a turn that was taken from an earlier version of its document has of its own."""


def read_turns(
    output: Location,
    files: Iterable[str],
    *,
    reader_fingerprint: str,
    document_hashes: Sequence[str],
    ended_by: Mapping[ReadingKey, str] = MappingProxyType({}),
    with_tokens: bool = True,
) -> dict[ReadingKey, dict[str, TurnRow]]:
    """The turns of one reader, by reading and turn path; see `read_turns_of`."""
    turns = read_turns_of(
        output,
        files,
        fingerprints=[reader_fingerprint],
        document_hashes=document_hashes,
        ended_by={(reader_fingerprint, key): line for key, line in ended_by.items()},
        with_tokens=with_tokens,
    )
    return turns[reader_fingerprint]


def read_turns_of(
    output: Location,
    files: Iterable[str],
    *,
    fingerprints: Collection[str],
    document_hashes: Sequence[str],
    ended_by: Mapping[tuple[str, ReadingKey], str] = MappingProxyType({}),
    with_tokens: bool = True,
) -> dict[str, dict[ReadingKey, dict[str, TurnRow]]]:
    """The turns of these documents in these files, by fingerprint, reading and turn path.

    Rows are of `TURN_LOG`; without tokens, `num_tokens` stands for token_ids and logprobs, which take most room.
    Where a turn was logged twice, one is taken by a rule that no clock decides; see `_turn_rank`. A turn that was taken
    from an earlier version of its document has the completion of that one, if `files` name where it stands.

    Args:
        output: the run's location.
        files: log files of turns.
        fingerprints: the reader, and what is asked after its answers.
        document_hashes: the documents.
        ended_by: the `line` of what ended a reading, or closed it; turns of later runs had no part in it.
        with_tokens: whether token_ids and logprobs are read.
    """
    readings: dict[str, dict[ReadingKey, dict[str, TurnRow]]] = {name: defaultdict(dict) for name in fingerprints}
    wanted = pa.array(document_hashes, pa.string())
    names = [name for name in TURN_LOG.names if with_tokens or name not in ("logprobs", "menu_logprobs")]
    ranks: dict[tuple[str, ReadingKey, str], TurnRank] = {}
    files = list(files)
    tables = read_log_files(output, files, columns=names, fingerprints=fingerprints, document_hashes=wanted)
    for file, table in zip(files, tables, strict=True):
        for row in (table if with_tokens else _without_tokens(table)).to_pylist():
            of, key = row["reader_fingerprint"], (row["document_hash"], row["question_hash"], row["sample"])
            rank = _turn_rank(row, line=log_line(file), ended_by=ended_by.get((of, key)))
            place = (of, key, row["path"])
            if place not in ranks or rank > ranks[place]:
                ranks[place] = rank
                readings[of][key][row["path"]] = row
    _fill_held(readings, output, files, names=names, with_tokens=with_tokens)
    return readings


def _fill_held(
    readings: Mapping[str, Mapping[ReadingKey, dict[str, TurnRow]]],
    output: Location,
    files: Sequence[str],
    *,
    names: list[str],
    with_tokens: bool,
) -> None:
    """Gives each turn that was taken from an earlier version its completion; one whose file is gone is left out."""
    taken = [
        (turns, row)
        for of_reader in readings.values()
        for turns in of_reader.values()
        for row in turns.values()
        if row.get("held_from") is not None
    ]
    if not taken:
        return
    versions = pa.array(sorted({version for _, row in taken if (version := row.get("held_from"))}), pa.string())
    asked: dict[tuple[object, ...], dict[str, TurnRow]] = defaultdict(dict)
    for table in read_log_files(output, files, columns=names, fingerprints=list(readings), document_hashes=versions):
        own = table.filter(pc.is_null(table["held_from"]))
        for row in (own if with_tokens else _without_tokens(own)).to_pylist():
            asked[_turn_place(row, document_hash=row["document_hash"])][row["path"]] = row
    for turns, row in taken:
        found = asked.get(_turn_place(row, document_hash=row["held_from"]))
        if found is None:
            del turns[row["path"]]
        else:
            own_columns = {name: value for name, value in row.items() if name in PLACE_COLUMNS}
            source = found.get(row["path"]) or found[min(found)]
            turns[row["path"]] = cast("TurnRow", {**source, **own_columns})


def _turn_place(row: Mapping[str, Any], *, document_hash: str | None) -> tuple[object, ...]:
    """What names one row of the log: two attempts may have asked one turn, but not at the same microsecond.

    The path is no part of it: the same prompt may have another path in another version of the document.
    """
    names = ("reader_fingerprint", "question_hash", "sample", "prompt_hash", "finished_at")
    return (document_hash, *[row[name] for name in names])


def _without_tokens(table: pa.Table) -> pa.Table:
    num_tokens = pc.list_value_length(table["token_ids"])
    return table.drop_columns(["token_ids"]).append_column("num_tokens", num_tokens)


def _turn_rank(row: TurnRow, *, line: str, ended_by: str | None) -> TurnRank:
    """The rank of a turn: the last run up to the one that ended the reading; in it that writer, then the first turn.

    A run replays what earlier runs logged and asks for the rest, and so does a reader that replaces one which was cut
    off. The turns of highest rank are the ones that the reading used.
    """
    had_part = ended_by is None or row["run_id"] <= ended_by  # a line begins with its run's id
    return (had_part, row["run_id"], line == ended_by, -row["finished_at"].timestamp())
