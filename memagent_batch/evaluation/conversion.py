"""Foreign suites in this project's layout, made by `evaluate run` in its own output."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa

from memagent_batch.evaluation.foreign import (
    ForeignFormat,
    ForeignQuestion,
    detect_format,
    foreign_files,
    question_row,
    read_foreign,
)
from memagent_batch.evaluation.suite import (
    CONVERTED_QUESTIONS,
    DOCUMENTS_FOLDER,
    QUESTIONS_FILE,
    SUITE_DOCUMENTS,
    SUITE_FILE,
    SUITE_FORMAT,
    SUITE_QUESTIONS,
    ConvertedQuestion,
    is_suite,
    read_suite_questions,
    require_scorable,
)
from memagent_batch.masking import mask_url
from memagent_batch.store.json_files import read_json, write_json
from memagent_batch.store.location import Location
from memagent_batch.store.parquet import open_row_groups, parquet_bytes

CONVERTED_FILE = "part-0.parquet"
GROUP_CHARS = 4 * 1024 * 1024
"""Text of a row group, characters: what is in memory at once, beside one document."""


def convert_suite(suite: Location, *, target: Location, foreign_format: ForeignFormat) -> Location:
    """Writes a foreign suite as one of ours, unless it lies there already, and returns where it lies.

    Streams: holds one row group of documents, and the questions.

    Raises:
        InputError: the suite is empty, or a record is malformed.
        StorageError: the target can't be written.
    """
    source = _converted_source(suite, foreign_format=foreign_format)
    there = read_json(target / SUITE_FILE)
    if there is not None and there.get("source") == source:
        return target
    target.delete()
    questions: list[ConvertedQuestion] = []
    with open_row_groups(target / DOCUMENTS_FOLDER / CONVERTED_FILE, schema=SUITE_DOCUMENTS) as documents:
        for group in _groups(read_foreign(suite, foreign_format=foreign_format)):
            texts = {question.document_id: question.document for question in group}
            documents.write([{"document_id": name, "text": text} for name, text in texts.items()])
            questions.extend(map(question_row, group))
    require_scorable(questions, where=suite.uri)
    table = pa.Table.from_pylist(questions, schema=CONVERTED_QUESTIONS)
    (target / QUESTIONS_FILE).write_bytes(parquet_bytes(table))
    splits = {entry["values"]: entry["counts"] for entry in table["split"].value_counts().to_pylist()}
    description = {"format": SUITE_FORMAT, "source": source, "questions": len(questions), "splits": splits}
    write_json(target / SUITE_FILE, description)
    return target


def read_any_questions(suite: Location, *, foreign_format: ForeignFormat | None) -> pa.Table:
    """The questions of a suite of ours or of others, a table of `SUITE_QUESTIONS`; converts nothing.

    Raises:
        InputError: the suite is empty, not whole or malformed.
    """
    if foreign_format is None and is_suite(suite):
        return read_suite_questions(suite)
    found = foreign_format or detect_format(suite)
    questions = [question_row(question) for question in read_foreign(suite, foreign_format=found)]
    require_scorable(questions, where=suite.uri)
    return pa.Table.from_pylist(questions, schema=SUITE_QUESTIONS)


def _converted_source(suite: Location, *, foreign_format: ForeignFormat) -> dict[str, Any]:
    """What was converted, as `suite.json` says it, so that a changed file is converted again."""
    files = [
        {
            "path": mask_url(suite.at(file.path).uri),
            "size_bytes": file.size_bytes,
            "key": str(suite.fs.ukey(file.path)),
        }
        for file in foreign_files(suite)
    ]
    return {"format": foreign_format.value, "files": files}


def _groups(questions: Iterator[ForeignQuestion]) -> Iterator[list[ForeignQuestion]]:
    """Questions with about so much text, all questions of a document together."""
    group: list[ForeignQuestion] = []
    num_chars = 0
    for _, of_document in groupby(questions, key=lambda question: question.document_id):
        asked = list(of_document)
        group += asked
        num_chars += len(asked[0].document)
        if num_chars >= GROUP_CHARS:
            yield group
            group, num_chars = [], 0
    if group:
        yield group
