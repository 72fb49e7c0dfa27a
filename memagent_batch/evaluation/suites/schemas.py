"""Evaluation suites and scores as tables: what `evaluate make` writes, `run` reads, `score` and `report` work on.

A suite is ordinary input of the main job: `documents/*.parquet` and `questions.parquet`, beside `suite.json`.
"""

from typing import TypedDict

import pyarrow as pa

from memagent_batch.domain.scores import Metric
from memagent_batch.files.columns import column
from memagent_batch.log.schemas import SAMPLE
from memagent_batch.runs.schemas import DOCUMENT_ID, QUESTION, QUESTION_ID

SUITE_FILE = "suite.json"
"""What was asked for: tasks, lengths, samples, seed, tokeniser. Written last: without it a suite is not whole."""
DOCUMENTS_FOLDER = "documents"
QUESTIONS_FILE = "questions.parquet"

SUITE_FORMAT = "memagent-suite/1"
"""Changes with every change of layout that an older version can't read."""

REFERENCES = column("references", pa.list_(pa.string()), "right answers; what they mean together is up to the metric")
CELL = [
    column("task", pa.string(), "name of the task, such as niah_single_1"),
    column("length_tokens", pa.int64(), "length of the document that was asked for", unit="tokens", nullable=True),
    column("depth", pa.float64(), "where the (only) needle begins, from 0 to 1; null without one", nullable=True),
    column("metric", pa.string(), "the task's own metric: " + ", ".join(Metric)),
]

SUITE_DOCUMENTS = pa.schema([DOCUMENT_ID, column("text", pa.string(), "the document")])
"""One row for each document."""

SUITE_QUESTIONS = pa.schema([QUESTION_ID, DOCUMENT_ID, QUESTION, REFERENCES, *CELL])
"""One row for each question."""


class SuiteQuestion(TypedDict):
    """A row of `SUITE_QUESTIONS`."""

    question_id: str
    document_id: str
    question: str
    references: list[str]
    task: str
    length_tokens: int | None
    depth: float | None
    metric: str


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

SCORES = pa.schema(
    [
        column("variant", pa.string(), "what was evaluated: a policy, a model, or both"),
        DOCUMENT_ID,
        QUESTION_ID,
        SAMPLE,
        *CELL,
        column("score", pa.float64(), "the task's own metric; 0 where there is nothing to score"),
        column("scored_on", pa.string(), "what `score` is of: response or answer"),
        *[column(metric.value, pa.float64(), f"metric {metric.value}") for metric in Metric],
        column("status", pa.string(), "ok or failed; missing where the answers have no row of it"),
        column("answered", pa.bool_(), "whether there was anything to score: an answer, or a response"),
        column("answer", pa.string(), "the answer that was taken out of the response", nullable=True),
        REFERENCES,
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
        *[SCORES.field(name) for name in SCORES.names[SCORES.names.index("num_document_tokens") :]],
    ]
)
"""What of an answers table is scored."""
