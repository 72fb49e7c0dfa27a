"""Evaluation suites and scores as tables: what `evaluate make` writes, `run` reads, `score` and `report` work on.

A suite is ordinary input of the main job: `documents/*.parquet` and `questions.parquet`, beside `suite.json`.
"""

from typing import TypedDict

import pyarrow as pa

from memagent_batch.domain.scoring.scores import TEXT_METRICS, Metric
from memagent_batch.files.columns import column
from memagent_batch.inputs.questions import TypeFields
from memagent_batch.log.rows import CLOSING, SAMPLE
from memagent_batch.runs.tables import DOCUMENT_ID, QUESTION, QUESTION_ID

SUITE_FILE = "suite.json"
"""What was asked for: tasks, lengths, samples, seed, tokeniser. Written last: without it a suite is not whole."""
DOCUMENTS_FOLDER = "documents"
QUESTIONS_FILE = "questions.parquet"

SUITE_FORMAT = "memagent-suite/3"
"""Changes with every change of layout that an older version can't read."""

REFERENCES = column("references", pa.list_(pa.string()), "right answers; what they mean together is up to the metric")
CELL = [
    column("task", pa.string(), "name of the task, such as niah_single_1"),
    column("length_tokens", pa.int64(), "length of the document that was asked for", unit="tokens", nullable=True),
    column("depth", pa.float64(), "where the (only) needle begins, from 0 to 1; null without one", nullable=True),
    column("metric", pa.string(), "the task's own metric: " + ", ".join(Metric)),
]

ANSWER_TYPE = [
    column("answer_type", pa.string(), "type that the answer is asked for as; null for none", nullable=True),
    column("labels", pa.list_(pa.string()), "what may be chosen", nullable=True),
    column("schema", pa.string(), "JSON Schema of the value, as text", nullable=True),
    column("unit", pa.string(), "unit of the number", nullable=True),
    column("not_stated", pa.bool_(), "whether `not stated` may be answered", nullable=True),
]
"""The type that a question asks for, named as in a question list."""

IS_ABSENT = column("is_absent", pa.bool_(), "whether the document does not state the answer")
SPREAD = column(
    "spread",
    pa.float64(),
    "distance between the first and the last sentence that bears the answer, as a part of the document; null where "
    "there are not two",
    nullable=True,
)
GOLD_SPANS = column(
    "gold_spans",
    pa.list_(
        pa.struct(
            [pa.field("char_start", pa.int64(), nullable=False), pa.field("char_end", pa.int64(), nullable=False)]
        )
    ),
    "sentences that bear the answer, as spans of code points; empty where the document does not state it, null where "
    "they are not known",
    nullable=True,
)

SUITE_DOCUMENTS = pa.schema([DOCUMENT_ID, column("text", pa.string(), "the document")])
"""One row for each document."""

SUITE_QUESTIONS = pa.schema(
    [QUESTION_ID, DOCUMENT_ID, QUESTION, REFERENCES, *CELL, *ANSWER_TYPE, IS_ABSENT, SPREAD, GOLD_SPANS]
)
"""One row for each question."""


class GoldSpanRow(TypedDict):
    """A place in a document."""

    char_start: int
    char_end: int


class SuiteQuestion(TypeFields):
    """A row of `SUITE_QUESTIONS`."""

    question_id: str
    document_id: str
    question: str
    references: list[str]
    task: str
    length_tokens: int | None
    depth: float | None
    metric: str
    is_absent: bool
    spread: float | None
    gold_spans: list[GoldSpanRow] | None


CONVERTED_QUESTIONS = pa.schema(
    [
        *SUITE_QUESTIONS,
        column("split", pa.string(), "how question and document were told apart: given, template or last_paragraph"),
    ]
)
"""The questions of a converted suite."""


class ConvertedQuestion(SuiteQuestion):
    """A row of `CONVERTED_QUESTIONS`."""

    split: str


STATUS_MISSING = "missing"
"""Status of a reading that the suite asks for and that the answers have no row of."""

VALUE_FIELDS = [field for field in CLOSING if field.name in {"value", "value_status", "confidence"}]
"""What an answers table says of the typed value."""

CLOSING_SCORES = [
    *VALUE_FIELDS,
    column("value_right", pa.bool_(), "whether the typed value equals a reference; null without a type", nullable=True),
    column(
        "reference_value",
        pa.string(),
        "the first reference as a typed value, as JSON; null for not stated",
        nullable=True,
    ),
    IS_ABSENT,
    column("abstained", pa.bool_(), "whether the value, or the answer of a question without a type, is `not stated`"),
    column("num_evidence", pa.int32(), "sentences of evidence; null where none were asked for", nullable=True),
    column(
        "evidence_precision",
        pa.float64(),
        "share of these that overlap a sentence that bears the answer; null where that is not known or there is none",
        nullable=True,
    ),
    column(
        "evidence_recall",
        pa.float64(),
        "share of the sentences that bear the answer that evidence overlaps",
        nullable=True,
    ),
    column("evidence_f1", pa.float64(), "harmonic mean of both", nullable=True),
    column("evidence_hit", pa.bool_(), "whether any evidence overlaps a sentence that bears the answer", nullable=True),
]
"""Scores of what was asked after the answer."""

SCORES = pa.schema(
    [
        column("variant", pa.string(), "what was evaluated: a policy, a model, or both"),
        DOCUMENT_ID,
        QUESTION_ID,
        SAMPLE,
        *CELL,
        column("score", pa.float64(), "the task's own metric; 0 where there is nothing to score"),
        column("scored_on", pa.string(), "what `score` is of: response, answer or value"),
        *[column(metric.value, pa.float64(), f"metric {metric.value}") for metric in TEXT_METRICS],
        column("status", pa.string(), "ok or failed; missing where the answers have no row of it"),
        column("answered", pa.bool_(), "whether there was anything to score: an answer, or a response"),
        column("answer", pa.string(), "the answer that was taken out of the response", nullable=True),
        REFERENCES,
        SPREAD,
        ANSWER_TYPE[0],
        *CLOSING_SCORES,
        column("num_document_tokens", pa.int64(), "length of the document", unit="tokens", nullable=True),
        column("num_turns", pa.int32(), "turns of the reading", unit="turns"),
        column("num_prompt_tokens", pa.int64(), "prompt tokens of all turns", unit="tokens"),
        column("num_cached_prompt_tokens", pa.int64(), "of these, held by the prefix cache", unit="tokens"),
        column("num_completion_tokens", pa.int64(), "completion tokens of all turns", unit="tokens"),
        column("engine_seconds", pa.float64(), "time inside the engine, summed over turns", unit="seconds"),
    ]
)
"""One row for each reading that the suite asks for."""

ANSWER_COLUMNS = pa.schema(
    [
        DOCUMENT_ID,
        QUESTION_ID,
        SAMPLE,
        SCORES.field("status"),
        SCORES.field("answer"),
        column("response", pa.string(), "text of the answer turn, without thoughts", nullable=True),
        *VALUE_FIELDS,
        SCORES.field("num_evidence"),
        *[SCORES.field(name) for name in SCORES.names[SCORES.names.index("num_document_tokens") :]],
    ]
)
"""What of an answers table is scored."""
