"""An export's files: turns as Parquet with one row group for each sample, a data set of groups, settings, a record."""

import io
from dataclasses import asdict, dataclass
from typing import TypedDict

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memagent_batch.errors import InputError
from memagent_batch.files.location import Location
from memagent_batch.training.bridges.bridge import Bridge, Group

EXPORT_FOLDER = "turns"
PROMPTS_FILE = "prompts.parquet"
EXPORT_FILE = "export.json"
"""Counts, files and source. Written last: without it the export is not whole."""

EXPORT_FORMAT = "memagent-export/1"
"""Changes with every change of layout that an older version can't read."""

EXPORT_FILE_BYTES = 64 * 1024 * 1024
"""Rows of a file, as Arrow holds them; a file ends with the group that reaches it."""

PROMPTS_BATCH = 1024
"""Rows of the data set that are held before they are encoded."""

TOKEN_COLUMNS = ("prompt_token_ids", "response_token_ids", "response_logprobs", "response_mask")


@dataclass(slots=True, kw_only=True)
class ExportCounts:
    """What became of the table's rows. Mutable: counted while they pass."""

    groups: int = 0
    """Groups in the export."""
    groups_left_out: int = 0
    """Groups without a sample that has an advantage."""
    samples: int = 0
    """Samples in the export."""
    samples_left_out: int = 0
    """Samples without an advantage: they failed, or have no reward."""
    turns: int = 0
    """Turns in the export."""
    turns_left_out: int = 0
    """Turns of exported samples without a token in their response."""
    response_tokens: int = 0
    """Tokens that are learnt from."""
    group_size: int = 0
    """Samples of the largest group."""
    longest_prompt_tokens: int = 0
    """Tokens of the longest prompt."""
    longest_response_tokens: int = 0
    """Tokens of the longest response."""
    longest_turn_tokens: int = 0
    """Tokens of the longest prompt and response together."""

    def as_record(self) -> dict[str, int]:
        """For `export.json`."""
        return asdict(self)


class ExportRecord(TypedDict):
    """`export.json`."""

    format: str
    to: str
    rollouts: str
    run_id: str
    advantage: str
    counts: dict[str, int]
    files: list[str]
    settings: list[str]
    finished_at: str


class ExportWriter:
    """Writes the samples of a table, group by group; files appear whole or not at all."""

    def __init__(self, output: Location, *, bridge: Bridge, export_id: str) -> None:
        """Starts an empty export; names of its files of turns hold `export_id`, so that no other export has them."""
        self._output = output
        self._bridge = bridge
        self._turns = _RowGroups(output, schema=bridge.turns, export_id=export_id)
        self._prompts = io.BytesIO()
        self._prompt_writer = pq.ParquetWriter(self._prompts, bridge.prompts, compression="zstd")
        self._prompt_rows: list[dict[str, object]] = []
        self._group_id: str | None = None
        self._group: Group | None = None
        self.counts = ExportCounts()

    @property
    def files(self) -> list[str]:
        """Files of turns that were written."""
        return self._turns.files

    def add(self, rows: pa.Table) -> None:
        """Takes the next sample: its rows of `ROLLOUTS`, groups side by side.

        Raises:
            InputError: its log-probabilities are missing.
        """
        if rows["group_id"][0].as_py() != self._group_id:
            self._end_group()
            self._group_id = rows["group_id"][0].as_py()
        learnt = rows.filter(pc.greater(pc.list_value_length(rows["response_token_ids"]), 0))
        if rows["advantage"][0].as_py() is None or not learnt.num_rows:
            self.counts.samples_left_out += 1
            return
        require_logprobs(learnt)
        self._write(learnt, num_turns=rows.num_rows)

    def close(self) -> bytes:
        """Writes the turns that are held, and returns the content of `PROMPTS_FILE`."""
        self._end_group()
        self._turns.close()
        self._flush_prompts()
        self._prompt_writer.close()
        return self._prompts.getvalue()

    def _write(self, learnt: pa.Table, *, num_turns: int) -> None:
        number = self._group.num_samples if self._group else 0
        rows = self._bridge.turn_rows(learnt, group=self.counts.groups, sample=number)
        file, row_group = self._turns.write(rows)
        started = self._group or Group(
            index=self.counts.groups,
            first_row=learnt.slice(0, 1).drop_columns(TOKEN_COLUMNS).to_pylist()[0],
            num_samples=0,
            file=file,
            first_row_group=row_group,
        )
        self._group = Group(
            index=started.index,
            first_row=started.first_row,
            num_samples=number + 1,
            file=started.file,
            first_row_group=started.first_row_group,
        )
        self._count(learnt, num_turns=num_turns)

    def _count(self, learnt: pa.Table, *, num_turns: int) -> None:
        counts = self.counts
        prompts = pc.list_value_length(learnt["prompt_token_ids"])
        responses = pc.list_value_length(learnt["response_token_ids"])
        counts.samples += 1
        counts.turns += learnt.num_rows
        counts.turns_left_out += num_turns - learnt.num_rows
        counts.response_tokens += pc.sum(responses).as_py()
        counts.longest_prompt_tokens = max(counts.longest_prompt_tokens, pc.max(prompts).as_py())
        counts.longest_response_tokens = max(counts.longest_response_tokens, pc.max(responses).as_py())
        counts.longest_turn_tokens = max(counts.longest_turn_tokens, pc.max(pc.add(prompts, responses)).as_py())

    def _end_group(self) -> None:
        if self._group is not None:
            self._prompt_rows.append(self._bridge.prompt_row(self._group))
            self.counts.groups += 1
            self.counts.group_size = max(self.counts.group_size, self._group.num_samples)
            self._turns.end_group()
        elif self._group_id is not None:
            self.counts.groups_left_out += 1
        self._group = None
        if len(self._prompt_rows) >= PROMPTS_BATCH:
            self._flush_prompts()

    def _flush_prompts(self) -> None:
        self._prompt_writer.write_table(pa.Table.from_pylist(self._prompt_rows, schema=self._bridge.prompts))
        self._prompt_rows = []


class _RowGroups:
    """Files of turns with one row group for each sample; no group of samples lies in two files."""

    def __init__(self, output: Location, *, schema: pa.Schema, export_id: str) -> None:
        self._output = output
        self._export_id = export_id
        self._schema = schema
        self._sink = io.BytesIO()
        self._writer: pq.ParquetWriter | None = None
        self._num_row_groups = 0
        self._num_bytes = 0
        self.files: list[str] = []

    @property
    def _file(self) -> str:
        return f"{EXPORT_FOLDER}/part-{len(self.files):05d}-{self._export_id}.parquet"

    def write(self, rows: pa.Table) -> tuple[str, int]:
        """Returns the file and the row group that hold the rows."""
        if self._writer is None:
            self._sink, self._num_row_groups, self._num_bytes = io.BytesIO(), 0, 0
            self._writer = pq.ParquetWriter(self._sink, self._schema, compression="zstd")
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._num_row_groups += 1
        self._num_bytes += rows.nbytes
        return self._file, self._num_row_groups - 1

    def end_group(self) -> None:
        if self._num_bytes >= EXPORT_FILE_BYTES:
            self.close()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            (self._output / self._file).write_bytes(self._sink.getvalue())
            self.files.append(self._file)
            self._writer, self._num_bytes = None, 0


def read_exported_turns(export: Location, *, file: str, row_group: int) -> pa.Table:
    """The turns of one exported sample."""
    with (export / file).open() as stream:
        return pq.ParquetFile(stream, pre_buffer=False).read_row_group(row_group, use_threads=False)


def require_logprobs(learnt: pa.Table) -> None:
    """Refuses turns with a token that has no log-probability; `learnt` has responses, `group_id` and `sample`.

    Raises:
        InputError: names the first one's sample.
    """
    known = pc.fill_null(pc.list_value_length(learnt["response_logprobs"]), -1)
    short = learnt.filter(pc.not_equal(known, pc.list_value_length(learnt["response_token_ids"])))
    if short.num_rows:
        row = short.select(["group_id", "sample"]).slice(0, 1).to_pylist()[0]
        raise InputError(
            f"group {row['group_id']}, sample {row['sample']}: not every token of its responses has a log-probability, "
            "without which nothing can be learnt; collect again with an engine that returns log-probabilities"
        )
