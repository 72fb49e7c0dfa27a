"""Second passes: the readings that they take, and their answers in place of those of the first."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import memagent_batch as ma
from memagent_batch.cli.main import main
from memagent_batch.cli.settings import job_of
from memagent_batch.domain.addresses import text_hash
from memagent_batch.errors import InputError
from memagent_batch.runs.history import recorded_plan, write_begun_plan
from memagent_batch.runs.plan import Again, Plan
from memagent_batch.runs.second_pass import select_again
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import LogIndex
from tests.runs.recorded_nights import Killed, Nights, plan_of

DOCUMENTS: dict[str, str | None] = {"a": "one", "b": "it fails", "c": "three"}


QUESTIONS = {"q": "Who?", "r": "Where?"}


WHERE = "question_id = 'q' and (status = 'failed' or answer ~ 'ee$')"


class TwoPasses:
    """A first pass that has finished, and the place of a second one."""

    def __init__(self, folder: Path) -> None:
        self.first, self.second = (Nights(Location(uri=str(folder / name))) for name in ("first", "second"))
        self.job = job_of(
            documents="docs",
            questions="list",
            output=self.second.output.uri,
            again_from=self.first.output.uri,
            again_where=WHERE,
        )
        self.first.run(DOCUMENTS, QUESTIONS)

    def select(self) -> Again:
        found = select_again(self.job, output=self.second.output)
        assert found is not None
        return found

    def plan(self, again: Again) -> Plan:
        whole = plan_of(
            {name: text for name, text in DOCUMENTS.items() if name in again.readings["document_id"].to_pylist()},
            QUESTIONS,
        )
        return Plan(whole.documents, whole.asked.table, samples=1, again=again)

    def stop(self, again: Again, *, has_plan: bool) -> None:
        """A night that is killed; whether it had written its plan by then."""
        plan = self.plan(again)
        with pytest.raises(Killed):
            self.second.run_plan(plan, texts(), job=self.job, killed_at="reading")
        if has_plan:
            run_id = json.loads((self.second.output / "run.json").read_bytes())["run_id"]
            write_begun_plan(self.second.output, recorded_plan(plan, LogIndex()), run_id=run_id)


def _pairs(again: Again) -> list[tuple[str, str]]:
    return sorted((row["document_id"], row["question_id"]) for row in again.readings.to_pylist())


def texts() -> dict[str, str]:
    return {text_hash(text): text for text in DOCUMENTS.values() if text}


@pytest.fixture
def passes(tmp_path: Path) -> TwoPasses:
    return TwoPasses(tmp_path)


def test_condition_takes_readings_and_the_run_has_a_row_for_each(passes: TwoPasses) -> None:
    again = passes.select()
    assert _pairs(again) == [("b", "q"), ("c", "q")]
    manifest = passes.second.run_plan(passes.plan(again), texts(), job=passes.job, mended=True)
    assert passes.second.answers() == {("b", "q"): "it fails", ("c", "q"): "three"}
    assert manifest["again"] == again.record
    assert (again.record["pairs"], again.record["where"]) == (2, WHERE)
    assert again.record["run_id"] == passes.first.last().run_id


def test_stopped_pass_goes_on_with_its_readings_until_it_has_finished(passes: TwoPasses) -> None:
    again = passes.select()
    passes.stop(again, has_plan=True)
    passes.first.run({**DOCUMENTS, "a": "a knee"}, QUESTIONS)
    assert _pairs(passes.select()) == _pairs(again)
    passes.stop(passes.select(), has_plan=False)
    resumed = passes.select()
    assert _pairs(resumed) == _pairs(again)
    assert resumed.record["run_id"] == again.record["run_id"]
    passes.second.run_plan(passes.plan(resumed), texts(), job=passes.job)
    assert _pairs(passes.select()) == [("a", "q"), ("b", "q"), ("c", "q")]


def test_stopped_pass_with_another_condition_selects_anew(passes: TwoPasses) -> None:
    passes.stop(passes.select(), has_plan=True)
    passes.job = passes.job.model_copy(update={"again_where": "document_id = 'a'"})
    assert _pairs(passes.select()) == [("a", "q"), ("a", "r")]


def test_question_that_is_not_asked_is_refused(passes: TwoPasses) -> None:
    again = passes.select()
    with pytest.raises(InputError, match=r"takes question 'q' of document 'b', which is not asked here"):
        Plan(passes.plan(again).documents, plan_of({}, {"r": "Where?"}).asked.table, samples=1, again=again)


FOUR_DOCUMENTS: dict[str, str | None] = {"a": "one", "b": "it fails", "c": "three", "d": "four"}


@pytest.fixture
def outputs(tmp_path: Path) -> list[str]:
    """A first pass; a second pass of another reader that read a and b; a third that read c and a changed d."""
    places = [str(tmp_path / name) for name in ("first", "second", "third")]
    first, second, third = (Nights(Location(uri=place)) for place in places)
    first.run(FOUR_DOCUMENTS, {"q": "Who?", "r": "Where?"})
    second.run({"a": "one", "b": "it fails"}, {"q": "Who?"}, reader="g")
    third.run({"b": "it fails", "c": "three", "d": "five"}, {"q": "Who?"}, reader="h", mended=True)
    return places


def test_last_usable_answer_of_the_same_text_stands(outputs: list[str]) -> None:
    merged = ma.merged_answers(outputs)
    rows = {(row["document_id"], row["question_id"]): row for row in merged.to_pylist()}
    assert list(rows) == [(name, question) for name in "abcd" for question in "qr"]
    places = {name: Path(rows[name, "q"]["output"]).name for name in "abcd"}
    assert places == {"a": "second", "b": "third", "c": "third", "d": "first"}
    assert {Path(rows[name, "r"]["output"]).name for name in "abcd"} == {"first"}
    assert rows["a", "q"]["fingerprint"] == "g"
    assert (rows["b", "q"]["status"], rows["b", "q"]["answer"]) == ("ok", "it fails")
    assert rows["b", "r"]["status"] == "failed", "no second pass read it"
    assert rows["d", "q"]["answer"] == "four", "the third read another text"
    alone = ma.merged_answers(outputs[:1])
    columns = ma.merged_answers(outputs).schema.names
    assert columns[-3:] == ["output", "first_value", "first_confidence"]
    answers = pa.concat_tables(pq.read_table(path) for path in ma.table_files(outputs[0], "answers"))
    order = [("document_id", "ascending"), ("question_id", "ascending")]
    assert alone.select(answers.schema.names).to_pylist() == answers.sort_by(order).to_pylist()
    assert alone.schema.field("finished_at").type == answers.schema.field("finished_at").type


@pytest.mark.parametrize("to", ["merged.parquet", "merged.arrow", "folder"])
def test_results_are_written_as_a_file(
    outputs: list[str], tmp_path: Path, to: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["results", "--over", *outputs, "--to", str(tmp_path / to)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["rows"], said["of_second_passes"]) == (8, 3)
    file = Path(said["file"])
    assert file == (tmp_path / to / "answers.parquet" if to == "folder" else tmp_path / to)
    read = pa.ipc.open_file(file).read_all() if to.endswith(".arrow") else pq.read_table(file)
    assert read.to_pylist() == ma.merged_answers(outputs).to_pylist()


def test_results_of_an_output_without_a_run_are_refused(
    outputs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["results", "--over", outputs[0], str(tmp_path / "gone"), "--to", str(tmp_path / "x.parquet")]) == 2
    assert "no run has finished at" in capsys.readouterr().err
    assert main(["results", "--over", outputs[0], "--to", str(tmp_path / "x.parquet")]) == 2
    assert "at least one second pass" in capsys.readouterr().err
    assert not (tmp_path / "x.parquet").exists()
