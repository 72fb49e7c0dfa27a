"""A second pass, without a model: it reads the readings that a condition takes, and goes on with them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from memagent_batch.cli.main import main
from memagent_batch.cli.settings import job_of
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, OutputError
from memagent_batch.run.comparison import Cause, compare_runs
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.history import find_run
from memagent_batch.run.manifest import Manifest
from memagent_batch.run.state import read_state
from tests.jobs import put_texts, small_settings
from tests.tables import table_rows

MONDAY = {"a": "the fox " * 60, "b": "a dog", "c": "a cat"}
QUESTIONS = '{"question_id": "q", "question": "Who?"}\n{"question_id": "r", "question": "Where?"}\n'
WHERE = "document_id != 'b' and question ~ '^Who'"


class Passes:
    """A first pass into `first`, and a second one into `second`."""

    def __init__(self, folder: Path, model: str) -> None:
        self.folder = folder
        (folder / "questions.jsonl").write_text(QUESTIONS)
        self.settings = small_settings(folder, model, questions=str(folder / "questions.jsonl"))

    def put(self, documents: Mapping[str, str]) -> None:
        lines = [json.dumps({"document_id": name, "text": text}) for name, text in documents.items()]
        put_texts(self.folder / "in", {"documents.jsonl": "\n".join(lines)})

    def first(self, **settings: Any) -> Manifest:
        return answer(job_of(**self.settings | {"output": str(self.folder / "first")} | settings))

    def second(self, where: str = WHERE, **settings: Any) -> Manifest:
        own = {"output": str(self.folder / "second"), "again_from": str(self.folder / "first"), "again_where": where}
        return answer(job_of(**{**self.settings, "simulated": {"completion_tokens": 30}, **own, **settings}))

    def read_by_second(self) -> set[tuple[str, str]]:
        rows = table_rows(str(self.folder / "second"), "answers")
        return {(row["document_id"], row["question_id"]) for row in rows}


@pytest.fixture
def passes(tmp_path: Path, text_model: str) -> Passes:
    made = Passes(tmp_path, text_model)
    made.put(MONDAY)
    return made


def test_second_pass_reads_what_the_condition_takes_and_is_a_run_like_any_other(passes: Passes) -> None:
    first = passes.first()
    second = passes.second()
    assert passes.read_by_second() == {("a", "q"), ("c", "q")}
    assert second["counts"]["asked"] == second["counts"]["ok"] == 2
    again = second["again"]
    assert again is not None
    assert (again["run_id"], again["where"], again["pairs"]) == (first["run_id"], WHERE, 2)
    assert second["changes"]["documents"]["removed"] == 0
    output = Location(uri=str(passes.folder / "second"))
    assert main(["verify", output.uri]) == 0
    state = read_state(output)
    assert state["again"] == second["again"]
    later = passes.second("document_id = 'b'")
    assert passes.read_by_second() == {("a", "q"), ("c", "q"), ("b", "q"), ("b", "r")}, "what it leaves out stays"
    tables = compare_runs(find_run(output, second["run_id"]), find_run(output, later["run_id"]))
    rows = [row for table in tables for row in table.to_pylist()]
    assert {(row["document_id"], row["question_id"], tuple(row["why"])) for row in rows} == {
        ("b", question, (Cause.LIMIT.value,)) for question in "qr"
    }


def test_second_pass_over_nothing_writes_empty_tables(passes: Passes) -> None:
    passes.first()
    assert passes.second("status = 'failed'")["counts"]["asked"] == 0
    assert passes.read_by_second() == set()


def test_second_pass_fails_readings_of_documents_that_are_gone(passes: Passes) -> None:
    passes.first()
    passes.put({"b": "a dog", "c": "a cat"})
    counts = passes.second()["counts"]
    assert (counts["asked"], counts["ok"], counts["failed"]) == (2, 1, 1)
    with pytest.raises(InputError, match=r"none of the 1 documents that it takes, such as 'a', is among"):
        passes.second("document_id = 'a'")


def test_second_pass_in_slices_reads_each_reading_in_one_of_them(passes: Passes) -> None:
    passes.first()
    counts = [
        passes.second("question_id = 'q'", input={"slice": f"{number}/2"})["counts"]["asked"] for number in (1, 2)
    ]
    assert sum(counts) == len(MONDAY)
    assert passes.read_by_second() == {(name, "q") for name in MONDAY}


def test_second_pass_that_can_not_be_read_is_refused(passes: Passes, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OutputError, match=r"nothing is at .*first"):
        passes.second()
    passes.first()
    with pytest.raises(InputError, match=r'^again_where: .*"confidenc" not found'):
        passes.second("confidenc < 0.8")
    with pytest.raises(InputError, match=r"^again_where: .*columns: .*confidence \(double\)"):
        passes.second("confidence = 'low'")
    with pytest.raises(OutputError, match="again_from: it is the output itself"):
        passes.second(output=str(passes.folder / "first"), again_from=str(passes.folder / "in" / ".." / "first"))
    with pytest.raises(InputError, match=r"it takes question 'r' of document 'b', which is not asked here"):
        passes.second("document_id = 'b'", questions=None, ask=({"question_id": "q", "question": "Who?"},))
    with pytest.raises(ValidationError, match="again_from and again_where need each other"):
        passes.second(again_where=None)
    with pytest.raises(ValidationError, match="limit is not for a second pass"):
        passes.second(limit=1)
    settings = [f"--documents={passes.folder / 'in'}", "--ask=Who?", f"--again-from={passes.folder / 'first'}"]
    assert main(["answer", *settings, f"--output={passes.folder / 'other'}", "--model=x", "--where", "answer ~"]) == 2
    assert "again_where: 'answer ~': syntax error at or near \"~\"" in capsys.readouterr().err
