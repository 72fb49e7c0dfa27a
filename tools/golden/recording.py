"""What a job left in its output folder, as tables and JSON values that another version's can be compared with."""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

RUN_ID = re.compile(r"\d{8}T\d{6}\.\d{3}Z\.[0-9a-f]{4}")
"""A run's id: the time at which it began, and random digits."""
LOG_FOLDERS = ("log/turns", "log/outcomes")
"""Folders whose files are one table: how many they are, and which rows each holds, depends on the time of flushes."""
PASSING = (".tmp-", "card.md", "SHA256SUMS")
"""How the names of files begin that are not compared: those that a run leaves behind or not, such as the lock of its
claim, the card, which says in words what the manifest holds, and the hashes of a run's files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """All that one output folder holds. Run ids read `RUN-1`, `RUN-2` by age, and the work folder `WORK`."""

    tables: dict[str, pa.Table]
    """Tables by path below the output; a folder of the log is one table."""
    values: dict[str, Any]
    """Contents of JSON files by path below the output."""


def read_output(output: Path, *, work: Path, runs: Sequence[str] = ()) -> Recording:
    """Reads every file below an output, but those of passing use.

    Args:
        output: The output.
        work: The folder that inputs and output lie in.
        runs: Ids of runs, beside those in names of files.

    Raises:
        ValueError: a file is neither a table nor JSON.
    """
    files = [path for path in output.rglob("*") if path.is_file() and not path.name.startswith(PASSING)]
    names = sorted(str(path.relative_to(output)) for path in files)
    replaced = _replacements([*names, *runs], work=work)
    tables: dict[str, list[pa.Table]] = defaultdict(list)
    values = {}
    for name in names:
        plain = _plain(name, replaced)
        if name.endswith(".json"):
            values[plain] = _plain(json.loads((output / name).read_bytes()), replaced)
        else:
            folder = next((folder for folder in LOG_FOLDERS if name.startswith(f"{folder}/")), plain)
            tables[folder].append(_plain_table(_read_table(output / name), replaced))
    return Recording(tables={name: pa.concat_tables(parts) for name, parts in tables.items()}, values=values)


def save(recording: Recording, folder: Path) -> None:
    """Writes a recording: tables as Arrow files, which keep types and schema metadata as they are."""
    for name, table in recording.tables.items():
        path = folder / "tables" / f"{name}.arrow"
        path.parent.mkdir(parents=True, exist_ok=True)
        pa.feather.write_feather(table, str(path))
    for name, value in recording.values.items():
        path = folder / "values" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, indent=2, ensure_ascii=False), encoding="utf-8")


def load(folder: Path) -> Recording:
    """Reads what `save` wrote."""
    tables, values = folder / "tables", folder / "values"
    return Recording(
        tables={
            str(path.relative_to(tables)).removesuffix(".arrow"): pa.feather.read_table(str(path), memory_map=False)
            for path in sorted(tables.rglob("*.arrow"))
        },
        values={
            str(path.relative_to(values)): json.loads(path.read_bytes())
            for path in sorted(values.rglob("*"))
            if path.is_file()
        },
    )


def _read_table(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pq.read_table(str(path), partitioning=None)
    if path.suffix == ".arrow":
        return pa.feather.read_table(str(path), memory_map=False)
    raise ValueError(f"{path}: neither a table nor JSON; state in {__name__} how its contents are compared")


def _replacements(names: Sequence[str], *, work: Path) -> dict[str, str]:
    """Texts that differ between two runs of the same code, and what stands for each."""
    runs = sorted({run_id for name in names for run_id in RUN_ID.findall(name)})
    return {str(work): "WORK"} | {run_id: f"RUN-{number}" for number, run_id in enumerate(runs, 1)}


def _plain_table(table: pa.Table, replaced: dict[str, str]) -> pa.Table:
    for position, field in enumerate(table.schema):
        if "string" in str(field.type):
            column = pa.array(_plain(table.column(position).to_pylist(), replaced), field.type)
            table = table.set_column(position, field, column)
    return table


def _plain(value: Any, replaced: dict[str, str]) -> Any:
    """The value with all texts replaced, however deep they lie."""
    match value:
        case str():
            for text, plain in replaced.items():
                value = value.replace(text, plain)
            return value
        case list():
            return [_plain(item, replaced) for item in value]
        case dict():
            return {name: _plain(item, replaced) for name, item in value.items()}
    return value
