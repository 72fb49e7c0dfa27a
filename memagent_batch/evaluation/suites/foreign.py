"""Suites that others made: RULER's JSONL, MemAgent's evaluation JSON, LongBench's JSONL, record by record; and those
whose file is one object of annotated documents (`annotated.py`).

Each record becomes one document and one question of it. Both have the same id, made of file and record number, so that
it is unique whatever ids the records bring, and leads back to the record.
"""

import posixpath
import re
from collections.abc import Iterator
from enum import StrEnum

from memagent_batch.domain.scoring.scores import Metric
from memagent_batch.errors import InputError
from memagent_batch.evaluation.suites.annotated import first_key, read_contract_nli, read_squad_suite
from memagent_batch.evaluation.suites.foreign_question import ForeignQuestion
from memagent_batch.evaluation.suites.ruler import Separation, split_prompt
from memagent_batch.files.location import Location
from memagent_batch.inputs.formats.json_objects import JsonObject, read_objects
from memagent_batch.inputs.formats.records import Column, Kind, Presence, column_value, refuse_missing
from memagent_batch.inputs.listing import InputFile, list_files

SUITE_ENDINGS = (".jsonl", ".json", ".ndjson")
"""Files that are taken from a folder; a file that is named itself may end as it likes."""

SPLIT_NAMES = frozenset({"validation", "test", "train", "dev"})
"""Names of files that say nothing of the task, which their folder then names."""

MEMAGENT_FILE = re.compile(r"eval_(?P<task>.+?)(?:_(?P<length>\d+))?")
"""MemAgent's file names: eval_TASK_LENGTH, and eval_N with a number of paragraphs."""

OBJECT_KEYS = {"data": "squad", "version": "squad", "documents": "contractnli", "labels": "contractnli"}
"""Format by the first key of a file that is one object."""

LONGBENCH_REASONS = {
    **dict.fromkeys(["gov_report", "qmsum", "multi_news", "samsum"], "it is scored by ROUGE, which is not built in"),
    **dict.fromkeys(["lcc", "repobench-p"], "it is scored by the similarity of code, which is not built in"),
    "trec": "it is scored by its list of classes, which is not built in",
    **dict.fromkeys(
        ["passage_count", "passage_retrieval_en"],
        "its question stands in LongBench's own prompt and not in the record, and its metric counts numbers",
    ),
    **dict.fromkeys(
        ["multifieldqa_zh", "dureader", "vcsum", "lsht", "passage_retrieval_zh"],
        "it is Chinese, and the metrics here compare words between spaces",
    ),
}
"""Data sets of LongBench that can't be scored as LongBench does, and why."""

LONGBENCH_QA = ("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique", "triviaqa")
"""Those that can: their metric is SQuAD's F1."""

FILLED = 0.5
"""A number in a RULER file's path is its length in tokens if its records fill at least this part of it."""


class ForeignFormat(StrEnum):
    """Format of a suite that another project made."""

    RULER = "ruler"
    """RULER: `input` with document and question in one, `outputs`, `length`."""
    MEMAGENT = "memagent"
    """MemAgent's evaluation files: `context`, `input`, and `answers` or `outputs`."""
    LONGBENCH = "longbench"
    """LongBench: `context`, `input`, `answers`, `dataset`."""
    SQUAD = "squad"
    """SQuAD and CUAD: `data` with articles, their paragraphs, and questions with places of answers."""
    CONTRACTNLI = "contractnli"
    """ContractNLI: `documents` with spans and annotations, and `labels` with hypotheses."""


def foreign_files(suite: Location) -> list[InputFile]:
    """The files of a suite, sorted by path.

    Raises:
        InputError: there is none.
    """
    files = list_files(suite)
    taken = [file for file in files if file.name.lower().endswith(SUITE_ENDINGS)]
    if not taken and (suite.is_folder() or len(files) > 1):
        raise InputError(
            f"suite: {suite.uri} holds neither a suite of this project nor {', '.join(SUITE_ENDINGS)} files; check the "
            "path"
        )
    return taken or files


def detect_format(suite: Location) -> ForeignFormat:
    """The format, by the first record.

    Raises:
        InputError: it is none of the known ones.
    """
    file = foreign_files(suite)[0]
    if (annotated := OBJECT_KEYS.get(first_key(suite.at(file.path)) or "")) is not None:
        return ForeignFormat(annotated)
    for record in read_objects(suite.at(file.path)):
        keys = set(record.value)
        if {"context", "input", "answers", "dataset"} <= keys:
            return ForeignFormat.LONGBENCH
        if {"context", "input"} <= keys and keys & {"answers", "outputs"}:
            return ForeignFormat.MEMAGENT
        if {"input", "outputs"} <= keys:
            return ForeignFormat.RULER
        raise InputError(
            f"{record.where}: this is a record of no known suite; its keys: {', '.join(record.value) or 'none'}; known "
            f"are {', '.join(ForeignFormat)} (--format), and suites of `memagent evaluate make`"
        )
    raise InputError(f"{suite.at(file.path).uri}: the suite is empty; give a file with records")


def read_foreign(suite: Location, *, foreign_format: ForeignFormat) -> Iterator[ForeignQuestion]:
    """Streams the questions of a suite with their documents, one file after another.

    Raises:
        InputError: a record is malformed; names file, line and remedy.
    """
    for file in foreign_files(suite):
        place = suite.at(file.path)
        if foreign_format in _WHOLE:
            yield from _WHOLE[foreign_format](place, name=file.name, task=_task_of_file(file.path))
            continue
        for record in read_objects(place):
            yield _foreign_question(record, file=file, foreign_format=foreign_format)


_WHOLE = {ForeignFormat.SQUAD: read_squad_suite, ForeignFormat.CONTRACTNLI: read_contract_nli}
"""Readers of the formats whose file is one object."""


def _foreign_question(record: JsonObject, *, file: InputFile, foreign_format: ForeignFormat) -> ForeignQuestion:
    match foreign_format:
        case ForeignFormat.RULER:
            return _ruler(record, file=file)
        case ForeignFormat.MEMAGENT:
            return _memagent(record, file=file)
        case _:
            return _longbench(record, file=file)


def _ruler(record: JsonObject, *, file: InputFile) -> ForeignQuestion:
    task = _task_of_file(file.path)
    parts = split_prompt(_record_text(record, "input"), answer_prefix=str(record.value.get("answer_prefix") or ""))
    if parts is None:
        raise InputError(
            f"{record.where}: `input` can't be taken apart into document and question: it ends with no question of "
            "RULER's, and has no paragraph before the last; put an empty line before the question"
        )
    return ForeignQuestion(
        document_id=_record_id(record, file),
        question_id=_record_id(record, file),
        document=parts.document,
        question=parts.question,
        split=parts.split,
        references=_references(record, "outputs"),
        task=task,
        length_tokens=_ruler_length(record, path=file.path),
        metric=Metric.RULER_ANY if task.startswith("qa") else Metric.RULER_ALL,
    )


def _memagent(record: JsonObject, *, file: InputFile) -> ForeignQuestion:
    stem = posixpath.splitext(posixpath.basename(file.path))[0]
    named = MEMAGENT_FILE.fullmatch(stem)
    task = named["task"] if named and named["length"] else stem
    key = "answers" if "answers" in record.value else "outputs"
    plain = Metric.RULER_ANY if task.startswith("qa") else Metric.RULER_ALL
    return ForeignQuestion(
        document_id=_record_id(record, file),
        question_id=_record_id(record, file),
        document=_record_text(record, "context"),
        question=_record_text(record, "input"),
        split=Separation.GIVEN,
        references=_references(record, key),
        task=task,
        length_tokens=int(named["length"]) if named and named["length"] else None,
        metric=Metric.SUB_EM if key == "answers" else plain,
    )


def _longbench(record: JsonObject, *, file: InputFile) -> ForeignQuestion:
    task = _record_text(record, "dataset")
    if task not in LONGBENCH_QA:
        reason = LONGBENCH_REASONS.get(task, f"only {', '.join(LONGBENCH_QA)} have a metric that is built in")
        raise InputError(
            f"{record.where}: the data set {task!r} can't be scored as LongBench does: {reason}; leave its records "
            "out, or read records of your own with --format memagent"
        )
    return ForeignQuestion(
        document_id=_record_id(record, file),
        question_id=_record_id(record, file),
        document=_record_text(record, "context"),
        question=_record_text(record, "input"),
        split=Separation.GIVEN,
        references=_references(record, "answers"),
        task=task,
        length_tokens=None,  # its `length` counts words
        metric=Metric.SQUAD_F1,
    )


def _record_id(record: JsonObject, file: InputFile) -> str:
    return f"{file.name}:{record.number}"


def _record_text(record: JsonObject, key: str) -> str:
    column = Column(name=key, kind=Kind.TEXT, presence=Presence.EVERY)
    if key not in record.value:
        refuse_missing(column, there=tuple(record.value), where=record.where)
    return str(column_value(record.value[key], column=column, where=record.where))


def _references(record: JsonObject, key: str) -> list[str]:
    column = Column(name=key, kind=Kind.REFERENCES, presence=Presence.EVERY)
    if key not in record.value:
        refuse_missing(column, there=tuple(record.value), where=record.where)
    value = column_value(record.value[key], column=column, where=record.where)
    references = value if isinstance(value, list) else [str(value)]
    if not any(reference.strip() for reference in references):
        raise InputError(
            f"{record.where}: {key!r} holds no reference to score against; add one, or leave the record out"
        )
    return references


def _task_of_file(path: str) -> str:
    folder, name = posixpath.split(path)
    stem = posixpath.splitext(name)[0]
    return posixpath.basename(folder) if stem in SPLIT_NAMES else stem


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
