"""Suites that others made: RULER's JSONL, MemAgent's evaluation JSON, LongBench's JSONL, record by record; SQuAD
and CUAD, ContractNLI, whose file is one object of annotated documents, held in memory while it is read.

Each record becomes one document and one question of it. Both have the same id, made of file and record number, so that
it is unique whatever ids the records bring, and leads back to the record.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

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
from memagent_batch.domain.follow_ups.answer_types import NOT_STATED_ENTRY, AnswerType, Label, ValueType
from memagent_batch.domain.scores import Metric
from memagent_batch.errors import InputError
from memagent_batch.evaluation.corpora import (
    answer_span,
    published_errors,
    published_json,
    required_list,
    required_text,
)
from memagent_batch.evaluation.suite import ConvertedQuestion, span_rows
from memagent_batch.store.errors import input_errors
from memagent_batch.store.location import Location

ENTAILMENT, CONTRADICTION, NOT_MENTIONED = "Entailment", "Contradiction", "NotMentioned"
"""Choices of ContractNLI; of the last one nothing stands in the document."""
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
HYPOTHESIS_ASKED = "Does the contract entail this statement, or contradict it? {hypothesis}"
"""A hypothesis of ContractNLI as a question."""
FIRST_KEY = re.compile(rb'\s*\{\s*"(?P<key>[a-z]+)"\s*:\s*(?P<opening>[\[{"])')
"""Beginning of a file that is one object."""
_HEAD_BYTES = 4096

QUESTION_FORMS = (
    re.compile(r"(?P<question>What (?:is|are all) the special magic .+? mentioned in the provided text\?).*"),
    re.compile(r"Question: (?P<question>.+?)(?: Answer:.*| ?\[/INST\].*)?"),
)
"""The last line of a prompt: the question, then perhaps the beginning of an answer."""


class Separation(StrEnum):
    """How a question was separated from its document."""

    GIVEN = "given"
    TEMPLATE = "template"
    """By the words with which one of RULER's templates begins its question."""
    LAST_PARAGRAPH = "last_paragraph"
    """By nothing but its place: it is the last paragraph, or the last line if there is one paragraph."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignQuestion:
    """One question of a suite that others made, with its document."""

    document_id: str
    """The file's path below what was named, `:`, and the record's number. Questions of a document follow each other."""
    question_id: str
    """The same if a record is one question."""
    document: str
    question: str
    references: list[str]
    task: str
    metric: Metric
    length_tokens: int | None = None
    """Requested length, tokens; None if the record does not state it."""
    split: Separation = Separation.GIVEN
    value_type: ValueType | None = None
    gold: tuple[tuple[int, int], ...] | None = None
    """Places that support the answer, as spans of code points; none if the document does not state it, None if the
    suite does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPrompt:
    """A prompt in two."""

    document: str
    """All that stands before the question, unchanged."""
    question: str
    """The question, without the word `Question:` and without the beginning of an answer."""
    split: Separation


_QuestionsOf = Callable[[Any, str, str], Iterator[ForeignQuestion]]


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
        InputError: it is not one of the known ones.
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
        if foreign_format in _BY_FILE:
            yield from _BY_FILE[foreign_format](place, name=file.name, task=_task_of_file(file.path))
            continue
        for record in read_objects(place):
            yield _BY_RECORD[foreign_format](record, file=file)


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
        references=_references(record, key),
        task=task,
        length_tokens=int(named["length"]) if named and named["length"] else None,
        metric=Metric.SUB_EM if key == "answers" else plain,
    )


def _longbench(record: JsonObject, *, file: InputFile) -> ForeignQuestion:
    task = _record_text(record, "dataset")  # its `length` counts words
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
        references=_references(record, "answers"),
        task=task,
        metric=Metric.SQUAD_F1,
    )


def _record_id(record: JsonObject, file: InputFile) -> str:
    return f"{file.name}:{record.number}"


def _record_text(record: JsonObject, key: str) -> str:
    column = InputColumn(name=key, kind=ColumnKind.TEXT, presence=Presence.EVERY)
    if key not in record.value:
        raise_missing_column(column, there=tuple(record.value), where=record.where)
    return str(column_value(record.value[key], column=column, where=record.where))


def _references(record: JsonObject, key: str) -> list[str]:
    column = InputColumn(name=key, kind=ColumnKind.REFERENCES, presence=Presence.EVERY)
    if key not in record.value:
        raise_missing_column(column, there=tuple(record.value), where=record.where)
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


def question_row(question: ForeignQuestion) -> ConvertedQuestion:
    """The question as a row of `CONVERTED_QUESTIONS`."""
    gold = question.gold
    return ConvertedQuestion(
        question_id=question.question_id,
        document_id=question.document_id,
        question=question.question,
        references=question.references,
        task=question.task,
        length_tokens=question.length_tokens,
        depth=gold[0][0] / len(question.document) if gold and len(gold) == 1 else None,
        metric=question.metric.value,
        **type_fields(question.value_type),
        is_absent=gold == (),
        gold_spans=span_rows(gold),
        split=question.split.value,
    )


def first_key(location: Location) -> str | None:
    """The first key of a file that is one object over all its lines; None where it begins otherwise."""
    with input_errors(location.uri), location.fs.open(location.path, "rb") as stream:
        found = FIRST_KEY.match(stream.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf"))
    return found["key"].decode() if found else None


def read_squad_suite(location: Location, *, name: str, task: str) -> Iterator[ForeignQuestion]:
    """SQuAD, version 1 or 2, or CUAD: each paragraph is a document, with all questions on it.

    A file that marks questions without an answer (`is_impossible`) has typed questions, which may be `not stated`.

    Raises:
        InputError: names the file, and the paragraph by its number.
    """
    articles = required_list(_read_json(location), "data", where=location.uri)
    paragraphs = [
        paragraph for article in articles for paragraph in required_list(article, "paragraphs", where=location.uri)
    ]
    yield from _questions(location, paragraphs, name=name, questions_of=_squad_questions, task=task)


def read_contract_nli(location: Location, *, name: str, task: str) -> Iterator[ForeignQuestion]:
    """ContractNLI: each contract is a document, each hypothesis a typed question: a label, or `not stated`.

    Raises:
        InputError: names the file, and the document by its number.
    """
    value = _read_json(location)
    hypotheses = value.get("labels") if isinstance(value, dict) else None
    if not isinstance(hypotheses, dict):
        raise InputError(f"{location.uri} has no object 'labels' of hypotheses; give the file as it was published")
    questions_of = partial(_nli_questions, hypotheses=hypotheses)
    documents = required_list(value, "documents", where=location.uri)
    yield from _questions(location, documents, name=name, questions_of=questions_of, task=task)


def _questions(
    location: Location, documents: list[Any], *, name: str, questions_of: _QuestionsOf, task: str
) -> Iterator[ForeignQuestion]:
    for number, document in enumerate(documents):
        with published_errors(f"{location.uri}, document {number + 1}"):
            found = list(questions_of(document, f"{name}:{number}", task))
        yield from found


def _squad_questions(paragraph: Any, record_id: str, task: str) -> Iterator[ForeignQuestion]:
    text = required_text(paragraph["context"])
    for number, asked in enumerate(paragraph["qas"]):
        spans = sorted({answer_span(answer, context=text) for answer in asked["answers"]})
        references = list(dict.fromkeys(text[start:end] for start, end in spans))
        is_marked = "is_impossible" in asked
        if not references and not is_marked:
            raise ValueError(f"question {number + 1} has no answer and no 'is_impossible'")
        yield ForeignQuestion(
            document_id=record_id,
            question_id=f"{record_id}:{number}",
            document=text,
            question=required_text(asked["question"]),
            references=references or [NOT_STATED_ENTRY],
            task=task,
            metric=Metric.SQUAD_F1,
            value_type=ValueType(type=AnswerType.TEXT) if is_marked else None,
            gold=tuple(spans),
        )


def _nli_questions(
    document: Any, record_id: str, task: str, *, hypotheses: Mapping[str, Any]
) -> Iterator[ForeignQuestion]:
    text, spans = required_text(document["text"]), document["spans"]
    for hypothesis_id, annotation in document["annotation_sets"][0]["annotations"].items():
        choice = annotation["choice"]
        if choice not in {ENTAILMENT, CONTRADICTION, NOT_MENTIONED}:
            raise ValueError(f"{hypothesis_id} has the choice {choice!r}")
        is_mentioned = choice != NOT_MENTIONED
        gold = sorted((int(spans[place][0]), int(spans[place][1])) for place in annotation["spans"])
        if any(not 0 <= start < end <= len(text) for start, end in gold):
            raise ValueError(f"{hypothesis_id} names a span outside the text")
        yield ForeignQuestion(
            document_id=record_id,
            question_id=f"{record_id}:{hypothesis_id}",
            document=text,
            question=HYPOTHESIS_ASKED.format(hypothesis=required_text(hypotheses[hypothesis_id]["hypothesis"])),
            references=[choice if is_mentioned else NOT_STATED_ENTRY],
            task=task,
            metric=Metric.VALUE,
            value_type=Label(ENTAILMENT, CONTRADICTION),
            gold=(tuple(gold) or None) if is_mentioned else (),
        )


def _read_json(location: Location) -> Any:
    with input_errors(location.uri):
        data = location.read_bytes()
    return published_json(data, location.uri)


def split_prompt(prompt: str, *, answer_prefix: str = "") -> SplitPrompt | None:
    """Document and question of a prompt; None if there is but one line, or nothing before the question.

    Args:
        prompt: The field `input` of a RULER record.
        answer_prefix: The field of that name, which newer files have.
    """
    prompt = prompt.rstrip()
    if answer_prefix.strip():
        prompt = prompt.removesuffix(answer_prefix.strip()).rstrip()
    line = prompt.rfind("\n")
    for form in QUESTION_FORMS:
        if found := form.fullmatch(prompt, line + 1):
            return _split_at(prompt, end=line, question=found["question"], split=Separation.TEMPLATE)
    paragraph = prompt.rfind("\n\n")
    border = line if paragraph < 0 else paragraph
    return _split_at(prompt, end=border, question=prompt[border:], split=Separation.LAST_PARAGRAPH)


def _split_at(prompt: str, *, end: int, question: str, split: Separation) -> SplitPrompt | None:
    if end < 0 or not prompt[:end].strip():
        return None
    return SplitPrompt(document=prompt[:end], question=question.strip(), split=split)


_BY_RECORD = {ForeignFormat.RULER: _ruler, ForeignFormat.MEMAGENT: _memagent, ForeignFormat.LONGBENCH: _longbench}
_BY_FILE = {ForeignFormat.SQUAD: read_squad_suite, ForeignFormat.CONTRACTNLI: read_contract_nli}
"""Readers of the formats with a record for each question, and of those whose file is one object."""
