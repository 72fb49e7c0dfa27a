import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.errors import InputError
from memagent_batch.evaluation.foreign import (
    convert_suite,
    foreign_source,
    read_any_questions,
    split_prompt,
)
from memagent_batch.evaluation.suite import SUITE_DOCUMENTS, read_suite_questions
from memagent_batch.store.location import Location

NEEDLE = {
    "index": 0,
    "input": "Noise. 77.\nWhat is the special magic number for a mentioned in the provided text?",
    "outputs": ["77"],
    "length": 4010,
}
HQA = {"context": "Document 1:\nParis.", "input": "Where?", "answers": ["Paris"]}


def write_lines(path: Path, *records: dict[str, Any]) -> Location:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return Location(uri=str(path))


def converted(suite: Location, target: Path) -> list[dict[str, Any]]:
    convert_suite(suite, source=foreign_source(suite), target=Location(uri=str(target)))
    rows: list[dict[str, Any]] = pq.read_table(target / "questions.parquet").to_pylist()
    return rows


def test_convert_suite_ruler_records_become_documents_and_questions(tmp_path: Path) -> None:
    suite = write_lines(tmp_path / "4096/niah_single_1/validation.jsonl", NEEDLE, {**NEEDLE, "length": 3900})
    rows = converted(suite, tmp_path / "suite")
    assert rows[0] == {
        "question_id": "validation.jsonl:0",
        "document_id": "validation.jsonl:0",
        "question": "What is the special magic number for a mentioned in the provided text?",
        "references": ["77"],
        "task": "niah_single_1",
        "length_tokens": 4096,
        "depth": None,
        "metric": "ruler_all",
        **dict.fromkeys(["answer_type", "labels", "schema", "unit", "not_stated", "gold_spans"]),
        "is_absent": False,
    }
    assert [row["length_tokens"] for row in rows] == [4096, 4096]
    documents = pq.read_table(tmp_path / "suite" / "documents")
    assert documents.schema.equals(SUITE_DOCUMENTS)
    assert documents.to_pylist()[0] == {"document_id": "validation.jsonl:0", "text": "Noise. 77."}


def test_convert_suite_ruler_folder_keeps_tasks_and_ids_apart(tmp_path: Path) -> None:
    write_lines(tmp_path / "ruler/niah_single_1/validation.jsonl", NEEDLE, NEEDLE)
    write_lines(tmp_path / "ruler/qa_1.jsonl", {**NEEDLE, "length": 100_000})
    rows = converted(Location(uri=str(tmp_path / "ruler")), tmp_path / "suite")
    assert [(row["document_id"], row["task"], row["metric"], row["length_tokens"]) for row in rows] == [
        ("niah_single_1/validation.jsonl:0", "niah_single_1", "ruler_all", 4096),
        ("niah_single_1/validation.jsonl:1", "niah_single_1", "ruler_all", 4096),
        ("qa_1.jsonl:0", "qa_1", "ruler_any", 131_072),
    ]


@pytest.mark.parametrize(
    ("folder", "length", "expected"),
    [
        ("4096/7/niah", 4010, 4096),
        ("100000/niah", 99_000, 100_000),
        ("2024/niah", 3_000, 4_096),
        ("niah", 4_096, 4_096),
    ],
)
def test_convert_suite_ruler_length_is_the_one_that_was_asked_for(
    tmp_path: Path, folder: str, length: int, expected: int
) -> None:
    suite = write_lines(tmp_path / folder / "validation.jsonl", {**NEEDLE, "length": length})
    assert converted(suite, tmp_path / "suite")[0]["length_tokens"] == expected


@pytest.mark.parametrize(
    ("name", "record", "task", "length", "metric"),
    [
        ("eval_50.json", HQA, "eval_50", None, "sub_em"),
        ("eval_vt_8192.json", {"context": "c", "input": "q", "outputs": ["A", 1]}, "vt", 8192, "ruler_all"),
        ("eval_qa_1_8192.json", {"context": "c", "input": "q", "outputs": ["A", "1"]}, "qa_1", 8192, "ruler_any"),
    ],
)
def test_convert_suite_memagent_array_has_task_and_length_of_its_name(
    tmp_path: Path, name: str, record: dict[str, Any], task: str, length: int | None, metric: str
) -> None:
    (tmp_path / name).write_text(json.dumps([record, record]))
    rows = converted(Location(uri=str(tmp_path / name)), tmp_path / "suite")
    assert [row["document_id"] for row in rows] == [f"{name}:0", f"{name}:1"]
    assert (rows[0]["task"], rows[0]["length_tokens"], rows[0]["metric"]) == (task, length, metric)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([], r"a\.jsonl: the suite is empty"),
        ([{"text": "a"}], r"line 1.*no known suite; its keys: text; known are RULER's"),
        ([NEEDLE, {"input": NEEDLE["input"]}], r"a\.jsonl, line 2.*no column 'outputs'"),
        ([{**NEEDLE, "input": "one line"}], "line 1.*can't be taken apart .*as `context` and `input`"),
        ([{**NEEDLE, "input": "Noise.\n\nTell me."}], "line 1.*last line is not a question of RULER's"),
        ([{**NEEDLE, "outputs": []}], "line 1.*'outputs' holds no reference"),
        ([{**NEEDLE, "outputs": [" "]}], "line 1.*'outputs' holds no reference"),
        ([{**NEEDLE, "outputs": [1.5]}], "line 1.*'outputs' holds float"),
        ([{**HQA, "context": [1, 2]}], "line 1.*'context' holds list"),
        ([{**HQA, "context": "\ud800"}], "line 1.*'context' .*surrogate"),
        ([{**HQA, "context": " "}], "line 1.*'context' is empty"),
    ],
)
def test_convert_suite_bad_record_is_refused_with_file_line_and_remedy(
    tmp_path: Path, records: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        converted(write_lines(tmp_path / "a.jsonl", *records), tmp_path / "suite")
    assert not (tmp_path / "suite" / "suite.json").exists()


def test_convert_suite_folder_without_records_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("a")
    with pytest.raises(InputError, match=r"neither a suite of this project nor \.jsonl"):
        converted(Location(uri=str(tmp_path)), tmp_path / "suite")


def test_convert_suite_again_is_not_done_again_until_a_file_changes(tmp_path: Path) -> None:
    suite = write_lines(tmp_path / "a.jsonl", HQA)
    converted(suite, tmp_path / "suite")
    before = (tmp_path / "suite" / "suite.json").stat().st_mtime_ns
    converted(suite, tmp_path / "suite")
    assert (tmp_path / "suite" / "suite.json").stat().st_mtime_ns == before
    write_lines(tmp_path / "a.jsonl", HQA, HQA)
    assert len(converted(suite, tmp_path / "suite")) == 2


def test_read_any_questions_are_those_of_the_converted_suite(tmp_path: Path) -> None:
    suite = write_lines(tmp_path / "a.jsonl", HQA, HQA)
    converted(suite, tmp_path / "suite")
    questions = read_any_questions(suite)
    assert questions.equals(read_suite_questions(Location(uri=str(tmp_path / "suite"))))


HAYSTACK = "Some special magic numbers are hidden in here.\nNoise.\nQuestion: is this noise? Yes.\n\nMore noise."
ONE = "What is the special magic number for red-cat mentioned in the provided text?"
MANY = "What are all the special magic words for red-cat, and blue-dog mentioned in the provided text?"
TRACKED = "Find all variables that are assigned the value 12345 in the text above."
COMMON = "What are the 10 most common words in the above list?"
FREQUENT = "Do not provide any explanation. What are the three most frequently appeared words in the above coded text?"
WHO = "Who wrote it: A, or B?"


@pytest.mark.parametrize(
    ("tail", "question"),
    [
        (f"\n{ONE}", ONE),
        (f"\n{MANY}", MANY),
        (f"\n{ONE} The special magic number for red-cat mentioned in the provided text is", ONE),
        (f"\nQuestion: {TRACKED}", TRACKED),
        (f"\nQuestion: {TRACKED} Answer: According to the chain(s) above, 5 variables are, they are: ", TRACKED),
        (f"\nQuestion: {COMMON}", COMMON),
        (f"\nQuestion: {COMMON} Answer: The top 10 words that appear most often are:", COMMON),
        (f"\nQuestion: {FREQUENT}", FREQUENT),
        (f"\n\nQuestion: {WHO}", WHO),
        (f"\n\nQuestion: {WHO} Answer:", WHO),
        (f"\n\nQuestion: {WHO} [/INST] Answer:", WHO),
        (f"\n\nQuestion: {WHO}\n\n", WHO),
    ],
)
def test_split_prompt_templates_of_ruler_are_known_by_their_question(tail: str, question: str) -> None:
    assert split_prompt(HAYSTACK + tail) == (HAYSTACK + tail[: tail.rstrip().rindex("\n")], question)


def test_split_prompt_answer_prefix_is_no_part_of_either() -> None:
    assert split_prompt(f"{HAYSTACK}\nQuestion: {WHO} It is", answer_prefix=" It is") == (HAYSTACK, WHO)


def test_split_prompt_worked_example_before_the_real_question_stays_in_the_document() -> None:
    example = f"VAR A = 1\nQuestion: {TRACKED} Answer: A\n\n"
    parts = split_prompt(f"{example}{'VAR B = 2. ' * 200}\nQuestion: {TRACKED}")
    assert parts is not None
    assert parts[0].startswith(example)


@pytest.mark.parametrize("prompt", ["", "one line", "\n\nonly", "one\n\ntwo", f"\n{ONE}", f"Question: {WHO}"])
def test_split_prompt_without_document_or_question_of_rulers_is_refused(prompt: str) -> None:
    assert split_prompt(prompt) is None


@given(st.text(min_size=1), st.text(alphabet="ab 1?", min_size=1))
def test_split_prompt_document_is_the_beginning_unchanged(text: str, question: str) -> None:
    prompt = f"{text}\nQuestion: {question}"
    parts = split_prompt(prompt)
    if parts is not None:
        assert prompt.startswith(parts[0])
        assert parts[1] in prompt[len(parts[0]) :]
