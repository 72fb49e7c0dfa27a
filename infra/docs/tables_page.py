"""`docs/reference/tables.md`, made from the schemas, so that page and tables can't differ."""

from pathlib import Path

import pyarrow as pa

from memagent_batch.convert.table import CONVERTED
from memagent_batch.log.schemas import CLOSING_LOG, OUTCOME_LOG, TURN_LOG
from memagent_batch.review.labels import LABELS
from memagent_batch.review.record import REVIEW_SAMPLE
from memagent_batch.runs.history.schemas import DIFFERENCES, REMOVED, RUN_PLAN
from memagent_batch.runs.tables.results import MAX_RESULT_COLUMNS, results_schema
from memagent_batch.runs.tables.schemas import ANSWERS, EVIDENCE, MEMORIES
from memagent_batch.training.rollouts.table import ROLLOUTS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tables.md"
TABLES = (
    (
        "answers/",
        ANSWERS,
        "One row for each reading that was asked for, always. Carried input columns follow, as text.",
    ),
    ("memories/", MEMORIES, "One row for each turn: which span of the document put what into the memory."),
    (
        "evidence/",
        EVIDENCE,
        "With `closing.evidence`: one row for each sentence that an answer rests on, and for each string of the answer "
        "that was looked for in the text. Whether the chosen sentences bear the answer is asked of all of them "
        "together: `support` and its probability are in `answers`.",
    ),
    (
        "results/",
        results_schema({}),
        f"Where a question asks for a type, in lists of up to {MAX_RESULT_COLUMNS:,} questions: one row for each "
        "document. A column for each question follows, named by its question_id: bool, text (label), list of texts "
        "(labels), double (number), date32 (date), or what the schema of a json says; text where the question asks for "
        "no type.",
    ),
    (
        "rollouts/",
        ROLLOUTS,
        "By `memagent collect`: one row for each conversation (turn) of each sample, the samples of a group together.",
    ),
    (
        "removed/",
        REMOVED,
        "One row for each document that an earlier run found in the input and the latest did not.",
    ),
    (
        "review/labels/",
        LABELS,
        "By `memagent review import`, append-only: one row for each label that a person gave.",
    ),
    (
        "review/ID/sample.parquet",
        REVIEW_SAMPLE,
        "By `memagent review make`: one row for each reading that people label.",
    ),
    ("log/turns/", TURN_LOG, "One row for each finished turn; a turn may be there twice, the first one stands."),
    (
        "log/outcomes/",
        OUTCOME_LOG,
        "One row for each reading that ended; the first `ok` stands, else the last `failed`.",
    ),
    (
        "log/closings/",
        CLOSING_LOG,
        "One row for each answered reading whose closing turns have ended.",
    ),
    (
        "runs/RUN_ID/plan.parquet",
        RUN_PLAN,
        "One row for each document of a finished run. Carried input columns follow, named `carry:<name>`.",
    ),
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

Parquet by default, Arrow IPC files with `--table-format arrow`. A reading is one document, one question, one sample.
`manifest.json` names the files that count; the turn log is Parquet always. This page is made from the schemas by
`python -m infra.docs.tables_page`.
"""


def tables_page() -> str:
    """The page as Markdown."""
    return "\n".join([INTRODUCTION, *(_section(name, schema, text) for name, schema, text in TABLES)])


def _section(name: str, schema: pa.Schema, text: str) -> str:
    rows = [
        f"| `{field.name}` | {_type(field)} | {_metadata(field, 'unit')} | {_metadata(field, 'description')} |"
        for field in schema
    ]
    return "\n".join(
        [f"## `{name}`", "", text, "", "| column | type | unit | meaning |", "|---|---|---|---|", *rows, ""]
    )


def _type(field: pa.Field) -> str:
    return f"{field.type}, may be null" if field.nullable else str(field.type)


def _metadata(field: pa.Field, key: str) -> str:
    text: str = field.metadata[key.encode()].decode()
    return text


if __name__ == "__main__":
    PAGE.write_text(tables_page(), encoding="utf-8")
