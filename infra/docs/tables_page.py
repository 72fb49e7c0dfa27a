"""`docs/reference/tables.md`, made from the schemas, so that page and tables can't differ."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import is_typeddict

import pyarrow as pa
import yaml

from memagent_batch.data.store.columns import arrow_schema
from memagent_batch.run.results import MAX_RESULT_COLUMNS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tables.md"
TABLES = yaml.safe_load(Path(__file__).with_name("tables.yaml").read_text(encoding="utf-8"))
INTRODUCTION = """# Tables

Each table is a Delta table in the folder of its name; [Output as tables](../how-to/tables.md) says how to read and load
it. A `?` after a type means that it may be null. Timestamps are UTC. A CRLF counts as two characters.
"""


def tables_page() -> str:
    """The page as Markdown: a column stands at the first table that has it, and later ones name that table."""
    described: dict[str, str] = {}
    parts = [INTRODUCTION]
    for table in TABLES:
        name, schema = table["name"], _schema(table["schema"])
        text = table["text"].format(max_result_columns=MAX_RESULT_COLUMNS)
        parts.append(_section(name, schema, text, described))
        described = {_key(field): name for field in schema} | described
    return "\n".join(parts)


def _schema(path: str) -> pa.Schema:
    """The schema that `module:NAME` names or makes, or that of a row class."""
    module, _, name = path.partition(":")
    named = getattr(importlib.import_module(module), name)
    if is_typeddict(named):
        return arrow_schema(named)
    return named({}) if callable(named) else named


def _section(name: str, schema: pa.Schema, text: str, described: Mapping[str, str]) -> str:
    """A table: columns that an earlier one describes by name, the others in full."""
    earlier: dict[str, list[str]] = {}
    own: dict[str, list[str]] = {}
    for field in schema:
        table = described.get(_key(field))
        group = earlier.setdefault(table, []) if table else own.setdefault(_meaning(field), [])
        group.append(f"`{field.name}`")
    as_in = [f"As in `{table}`: {', '.join(names)}." for table, names in earlier.items()]
    lines = [f"- {', '.join(names)} {meaning}" for meaning, names in own.items()]
    return "\n\n".join(filter(None, [f"## `{name}`", text, " ".join(as_in), "\n".join(lines)])) + "\n"


def _key(field: pa.Field) -> str:
    """What makes two columns the same, null or not: `answer` of one run, and `answer_before` of two."""
    name = field.name.removesuffix("_before").removesuffix("_after")
    return f"{name} {_meaning(field).replace('?', '', 1)}"


def _meaning(field: pa.Field) -> str:
    unit, description = (field.metadata[key].decode() for key in (b"unit", b"description"))
    is_nested = pa.types.is_list(field.type) and pa.types.is_struct(field.type.value_type)
    plain = "struct" if pa.types.is_struct(field.type) else str(field.type)
    kind = "list of structs" if is_nested else plain.partition("[")[0].replace("<item: ", " of ").rstrip(">")
    traits = filter(None, [f"{kind}{'?' if field.nullable else ''}", "" if unit in description else unit])
    return f"({', '.join(traits)}): {description}"


if __name__ == "__main__":
    PAGE.write_text(tables_page(), encoding="utf-8")
