"""Suites that others made: RULER's JSONL and MemAgent's evaluation JSON, in this project's layout.

Each record becomes one document and one question of it. Both have the same id, made of file and record number, so that
it is unique whatever ids the records bring, and leads back to the record.
"""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from memagent_batch.documents.formats.jsonl import JsonObject, read_objects
from memagent_batch.documents.formats.records import (
    ColumnKind,
    InputColumn,
    Presence,
    column_value,
    raise_missing_column,
)
from memagent_batch.documents.listing import InputFile, list_files
from memagent_batch.documents.questions import type_fields
from memagent_batch.domain.scores import Metric
from memagent_batch.errors import InputError
from memagent_batch.evaluation.suite import (
    DOCUMENTS_FOLDER,
    QUESTIONS_FILE,
    SUITE_DOCUMENTS,
    SUITE_FILE,
    SUITE_FORMAT,
    SUITE_QUESTIONS,
    SuiteQuestion,
    is_suite,
    read_suite_questions,
    require_scorable,
)
from memagent_batch.masking import mask_url
from memagent_batch.store.json_files import read_json, write_json
from memagent_batch.store.location import Location
from memagent_batch.store.parquet import open_row_groups, parquet_bytes

SUITE_ENDINGS = (".jsonl", ".json", ".ndjson")
"""Files that are taken from a folder; a file that is named itself may end as it likes."""
SPLIT_NAMES = frozenset({"validation", "test", "train", "dev"})
"""Names of files that say nothing of the task, which their folder then names."""
MEMAGENT_FILE = re.compile(r"eval_(?P<task>.+?)(?:_(?P<length>\d+))?")
"""MemAgent's file names: eval_TASK_LENGTH, and eval_N with a number of paragraphs."""
FILLED = 0.5
"""A number in a RULER file's path is its length in tokens if its records fill at least this part of it."""
QUESTION_FORMS = (
    re.compile(r"(?P<question>What (?:is|are all) the special magic .+? mentioned in the provided text\?).*"),
    re.compile(r"Question: (?P<question>.+?)(?: Answer:.*| ?\[/INST\].*)?"),
)
"""The last line of a RULER prompt: the question, then perhaps the beginning of an answer."""
CONVERTED_FILE = "part-0.parquet"
GROUP_CHARS = 4 * 1024 * 1024
"""Text of a row group, characters: what is in memory at once, beside one document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignSample:
    """One record of a suite that others made."""

    text: str
    question: SuiteQuestion

    @property
    def document_row(self) -> dict[str, str]:
        """The document, a row of `SUITE_DOCUMENTS`."""
        return {"document_id": self.question["document_id"], "text": self.text}


def convert_suite(suite: Location, *, source: list[dict[str, Any]], target: Location) -> Location:
    """Writes a foreign suite as one of ours, unless it lies there already, and returns where it lies.

    Streams: holds one row group of documents, and the questions. `source` is the suite's `foreign_source`.

    Raises:
        InputError: the suite is empty, or a record is malformed.
        StorageError: the target can't be written.
    """
    there = read_json(target / SUITE_FILE)
    if there is not None and there.get("source") == source:
        return target
    target.delete()
    questions: list[SuiteQuestion] = []
    with open_row_groups(target / DOCUMENTS_FOLDER / CONVERTED_FILE, schema=SUITE_DOCUMENTS) as documents:
        for group in _groups(_read_samples(suite)):
            documents.write([sample.document_row for sample in group])
            questions += [sample.question for sample in group]
    require_scorable(questions, where=suite.uri)
    (target / QUESTIONS_FILE).write_bytes(parquet_bytes(pa.Table.from_pylist(questions, schema=SUITE_QUESTIONS)))
    write_json(target / SUITE_FILE, {"format": SUITE_FORMAT, "source": source, "questions": len(questions)})
    return target


def read_any_questions(suite: Location) -> pa.Table:
    """The questions of a suite of ours or of others, a table of `SUITE_QUESTIONS`; converts nothing.

    Raises:
        InputError: the suite is empty, not whole or malformed.
    """
    if is_suite(suite):
        return read_suite_questions(suite)
    questions = [sample.question for sample in _read_samples(suite)]
    require_scorable(questions, where=suite.uri)
    return pa.Table.from_pylist(questions, schema=SUITE_QUESTIONS)


def _suite_files(suite: Location) -> list[InputFile]:
    """The files of a suite, sorted by path."""
    files = list_files(suite)
    chosen = [file for file in files if file.name.lower().endswith(SUITE_ENDINGS)]
    if not chosen and (suite.is_folder() or len(files) > 1):
        raise InputError(
            f"suite: {suite.uri} holds neither a suite of this project nor {', '.join(SUITE_ENDINGS)} files; check the "
            "path"
        )
    return chosen or files


def foreign_source(suite: Location) -> list[dict[str, Any]]:
    """What was converted, as `suite.json` says it, so that a changed file is converted again."""
    return [
        {
            "path": mask_url(suite.at(file.path).uri),
            "size_bytes": file.size_bytes,
            "key": str(suite.fs.ukey(file.path)),
        }
        for file in _suite_files(suite)
    ]


def _groups(samples: Iterator[ForeignSample]) -> Iterator[list[ForeignSample]]:
    """Samples with about so much text."""
    group: list[ForeignSample] = []
    num_chars = 0
    for sample in samples:
        group.append(sample)
        num_chars += len(sample.text)
        if num_chars >= GROUP_CHARS:
            yield group
            group, num_chars = [], 0
    if group:
        yield group


def _read_samples(suite: Location) -> Iterator[ForeignSample]:
    """Streams the records of a suite, one file after another."""
    for file in _suite_files(suite):
        for record in read_objects(suite.at(file.path)):
            if {"context", "input"} <= record.value.keys():
                yield _memagent(record, file=file)
            elif "input" in record.value:
                yield _ruler(record, file=file)
            else:
                raise InputError(
                    f"{record.where}: this is a record of no known suite; its keys: "
                    f"{', '.join(record.value) or 'none'}; known are RULER's and MemAgent's, and suites of `memagent "
                    "evaluate make`"
                )


def _ruler(record: JsonObject, *, file: InputFile) -> ForeignSample:
    folder, name = posixpath.split(file.path)
    stem = posixpath.splitext(name)[0]
    task = posixpath.basename(folder) if stem in SPLIT_NAMES else stem
    prefix = str(record.value.get("answer_prefix") or "")
    parts = split_prompt(_record_text(record, "input"), answer_prefix=prefix)
    if parts is None:
        raise InputError(
            f"{record.where}: `input` can't be taken apart into document and question: its last line is not a question "
            "of RULER's; write both apart, as `context` and `input`"
        )
    text, question = parts
    return _foreign_sample(
        record,
        file=file,
        text=text,
        question=question,
        references=_references(record, "outputs"),
        task=task,
        length_tokens=_ruler_length(record, path=file.path),
        metric=Metric.RULER_ANY if task.startswith("qa") else Metric.RULER_ALL,
    )


def _memagent(record: JsonObject, *, file: InputFile) -> ForeignSample:
    stem = posixpath.splitext(posixpath.basename(file.path))[0]
    named = MEMAGENT_FILE.fullmatch(stem)
    task = named["task"] if named and named["length"] else stem
    key = "answers" if "answers" in record.value else "outputs"
    plain = Metric.RULER_ANY if task.startswith("qa") else Metric.RULER_ALL
    return _foreign_sample(
        record,
        file=file,
        text=_record_text(record, "context"),
        question=_record_text(record, "input"),
        references=_references(record, key),
        task=task,
        length_tokens=int(named["length"]) if named and named["length"] else None,
        metric=Metric.SUB_EM if key == "answers" else plain,
    )


def _foreign_sample(
    record: JsonObject,
    *,
    file: InputFile,
    text: str,
    question: str,
    references: list[str],
    task: str,
    length_tokens: int | None,
    metric: Metric,
) -> ForeignSample:
    record_id = f"{file.name}:{record.number}"
    row = SuiteQuestion(
        question_id=record_id,
        document_id=record_id,
        question=question,
        references=references,
        task=task,
        length_tokens=length_tokens,
        depth=None,
        metric=metric.value,
        **type_fields(None),
        is_absent=False,
        gold_spans=None,
    )
    return ForeignSample(text=text, question=row)


def _record_text(record: JsonObject, key: str) -> str:
    return str(_record_value(record, key, ColumnKind.TEXT))


def _references(record: JsonObject, key: str) -> list[str]:
    value = _record_value(record, key, ColumnKind.REFERENCES)
    references = value if isinstance(value, list) else [str(value)]
    if not any(reference.strip() for reference in references):
        raise InputError(
            f"{record.where}: {key!r} holds no reference to score against; add one, or leave the record out"
        )
    return references


def _record_value(record: JsonObject, key: str, kind: ColumnKind) -> Any:
    column = InputColumn(name=key, kind=kind, presence=Presence.EVERY)
    if key not in record.value:
        raise_missing_column(column, there=tuple(record.value), where=record.where)
    return column_value(record.value[key], column=column, where=record.where)


def _ruler_length(record: JsonObject, *, path: str) -> int | None:
    """The length asked for: a number among the file's folders, as in RULER's own layout; else the next power of two.

    `length` itself differs from record to record; RULER fills a document up to just below what was asked for.
    """
    length = record.value.get("length")
    if not isinstance(length, int) or length < 1:
        return None
    numbers = [int(part) for part in path.split("/") if part.isdecimal()]
    named = [number for number in numbers if FILLED * number <= length <= number]
    return named[-1] if named else 1 << (length - 1).bit_length()


def split_prompt(prompt: str, *, answer_prefix: str = "") -> tuple[str, str] | None:
    """Document and question of a RULER prompt; None if its last line is not a question of RULER's, or stands alone.

    Args:
        prompt: The field `input` of a record.
        answer_prefix: The field of that name, which newer files have.
    """
    prompt = prompt.rstrip()
    if answer_prefix.strip():
        prompt = prompt.removesuffix(answer_prefix.strip()).rstrip()
    document, _, line = prompt.rpartition("\n")
    found = next((found for form in QUESTION_FORMS if (found := form.fullmatch(line))), None)
    return (document, found["question"].strip()) if found and document.strip() else None
