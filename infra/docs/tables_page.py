"""`docs/reference/tables.md`, made from the schemas, so that page and tables can't differ."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from memagent_batch.convert.table import CONVERTED
from memagent_batch.documents.converted import SOURCE_COLUMNS
from memagent_batch.review.labels import LABELS
from memagent_batch.runs.comparison import DIFFERENCES
from memagent_batch.runs.results import MAX_RESULT_COLUMNS, results_schema
from memagent_batch.runs.sign_offs import SIGN_OFFS
from memagent_batch.runs.tables import ANSWERS, EVIDENCE, MEMORIES, REMOVED_TABLE
from memagent_batch.store.turn_log.rows import TURN_LOG
from memagent_batch.training.rollouts.table import ROLLOUTS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tables.md"
TABLES = (
    (
        "answers/",
        ANSWERS,
        "One row for each reading that was asked for, always. Carried input columns follow, as text.",
    ),
    (
        "answers/ of converted documents",
        SOURCE_COLUMNS,
        "If the documents are a table of `memagent convert`, `answers` has these behind its other columns.",
    ),
    ("memories/", MEMORIES, "One row for each turn: which span of the document put what into the memory."),
    (
        "evidence/",
        EVIDENCE,
        "With `follow_ups.evidence`: one row for each sentence that an answer rests on, and for each string of the "
        "answer "
        "that was looked for in the text. `support` of all of them together is in `answers`.",
    ),
    (
        "results/",
        results_schema({}),
        f"If a question asks for a type, in lists of up to {MAX_RESULT_COLUMNS:,} questions: one row a document. "
        "A column for each question follows, named by its question_id: bool, text (label, no type), list of texts "
        "(labels), double (number), date32 (date), or what the schema of a json says.",
    ),
    (
        "rollouts/",
        ROLLOUTS,
        "By `memagent collect`: one row for each conversation (turn) of each sample, the samples of a group together.",
    ),
    (
        "removed/",
        REMOVED_TABLE,
        "One row for each document that an earlier run found in the input and the latest did not.",
    ),
    (
        "review/labels/",
        LABELS,
        "By `memagent review import`, append-only: one row for each label that a person gave.",
    ),
    (
        "review/signed/",
        SIGN_OFFS,
        "By `memagent review sign`, append-only: one row for each reading that a person signed off.",
    ),
    ("log/turns/", TURN_LOG, "One row for each finished turn; a turn may be there twice, the first one stands."),
    (
        "documents/",
        CONVERTED,
        "By `memagent convert`: one row for each part of each document. Every file of the input has one at least.",
    ),
    (
        "memagent diff --to FILE.parquet",
        DIFFERENCES,
        "One row for each reading whose answer, value, status or presence differs between two runs.",
    ),
)
INTRODUCTION = """# Tables

Parquet by default, Arrow IPC files with `--table-format arrow`; the turn log is Parquet always. `manifest.json` names
the files that count. A reading is one document, one question, one sample. A `?` behind a type: may be null. This page
is made by `python -m infra.docs.tables_page`.
"""


def tables_page() -> str:
    """The page as Markdown: a column stands at the first table that has it, and later ones name that table."""
    described: dict[str, str] = {}
    parts = [INTRODUCTION]
    for name, schema, text in TABLES:
        parts.append(_section(name, schema, text, described))
        described = {f"{field.name} {_meaning(field)}": name for field in schema} | described
    return "\n".join(parts)


def _section(name: str, schema: pa.Schema, text: str, described: Mapping[str, str]) -> str:
    """A table: columns that an earlier one describes by name, the others in full."""
    earlier: dict[str, list[str]] = {}
    own: dict[str, list[str]] = {}
    for field in schema:
        table = described.get(f"{field.name} {_meaning(field)}")
        group = earlier.setdefault(table, []) if table else own.setdefault(_meaning(field), [])
        group.append(f"`{field.name}`")
    as_in = [f"As in `{table}`: {', '.join(names)}." for table, names in earlier.items()]
    lines = [f"- {', '.join(names)} {meaning}" for meaning, names in own.items()]
    return "\n\n".join(filter(None, [f"## `{name}`", text, " ".join(as_in), "\n".join(lines)])) + "\n"


def _meaning(field: pa.Field) -> str:
    """Its type, unit and description."""
    unit, description = (field.metadata[key].decode() for key in (b"unit", b"description"))
    traits = filter(None, [f"{field.type}{'?' if field.nullable else ''}", unit])
    return f"({', '.join(traits)}): {description}"


if __name__ == "__main__":
    PAGE.write_text(tables_page(), encoding="utf-8")
