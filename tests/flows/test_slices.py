"""Documents read in slices, into one output or each into its own: together they are the whole run."""

import json
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.cli.main import main
from memagent_batch.config.job import JobConfig
from memagent_batch.config.sources import InputConfig
from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError
from memagent_batch.run.flows import answer as answer_flow
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.manifest import Manifest
from tests.documents.lake.forms import source_names
from tests.flows.test_sign import written_sheet
from tests.flows.test_verify import files_of
from tests.jobs import put_texts, small_job
from tests.tables import table_rows

NUM_DOCUMENTS, NUM_SLICES = 12, 3


@pytest.fixture
def job(tmp_path: Path, text_model: str) -> JobConfig:
    """A question of all documents, and one of the first."""
    (tmp_path / "in").mkdir()
    rows = [{"document_id": f"d{number}", "text": f"Line {number} of a text. " * 20} for number in range(NUM_DOCUMENTS)]
    (tmp_path / "in/all.jsonl").write_text("\n".join(map(json.dumps, rows)))
    questions = [{"question": "Who?"}, {"question": "When?", "document_id": "d0"}]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    return small_job(tmp_path, text_model, questions=str(tmp_path / "questions.jsonl"))


def in_slice(job: JobConfig, part: str, output: str | None = None) -> JobConfig:
    return job.model_copy(update={"input": InputConfig(slice=part), "output": output or job.output})


def read_in_slices(job: JobConfig, folder: Path, *, count: int = NUM_SLICES) -> dict[str, Manifest]:
    """An output for each slice, and the manifest of its run."""
    outputs = {f"{number}/{count}": str(folder / f"slice-{number}") for number in range(1, count + 1)}
    return {output: answer(in_slice(job, part, output)) for part, output in outputs.items()}


def answers(*outputs: str) -> dict[tuple[str, str], Any]:
    rows = [row for output in outputs for row in table_rows(output, "answers")]
    found = {(row["document_id"], row["question"]): row["answer"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_slices_in_one_output_are_the_whole_run(job: JobConfig, tmp_path: Path) -> None:
    answer(job)
    one = job.model_copy(update={"output": str(tmp_path / "one")})
    for _ in range(2):
        manifests = [answer(in_slice(one, f"{number}/{NUM_SLICES}")) for number in range(1, NUM_SLICES + 1)]
    assert answers(one.output) == answers(job.output)
    for manifest in manifests:
        assert 0 < manifest["counts"]["ok"] == manifest["counts"]["asked"] < NUM_DOCUMENTS
        assert (manifest["changes"]["documents"]["removed"], manifest["changes"]["readings"]["read"]) == (0, 0)
    assert main(["verify", one.output]) == 0


@pytest.mark.parametrize("is_typed", [False, True], ids=["texts", "types"])
def test_slices_that_replace_the_same_files_at_once_lose_and_double_no_row(
    job: JobConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_typed: bool
) -> None:
    answer(job)
    documents = (tmp_path / "in/all.jsonl").read_text()
    (tmp_path / "in/all.jsonl").write_text(documents.replace("Line", "Row"))
    if is_typed:
        questions = [{"question": "Who?", "answer_type": "text"}, {"question": "When?", "document_id": "d0"}]
        (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    read_plan = answer_flow.read_plan

    def overtaken(*args: Any, **kwargs: Any) -> answer_flow.ReadPlan:
        read = read_plan(*args, **kwargs)
        monkeypatch.undo()
        answer(in_slice(job, "2/2"))
        return read

    monkeypatch.setattr(answer_flow, "read_plan", overtaken)
    answer(in_slice(job, "1/2"))
    whole = job.model_copy(update={"output": str(tmp_path / "whole")})
    answer(whole)
    for table in ("answers", "memories", *(["results"] if is_typed else [])):
        assert len(table_rows(job.output, table)) == len(table_rows(whole.output, table)) > 0
    assert answers(job.output) == answers(whole.output)
    assert main(["verify", job.output]) == 0
    assert answer(in_slice(job, "1/2"))["changes"]["readings"]["read"] == 0


@pytest.mark.parametrize("parts", [("1/2", "2/2"), (None, "2/2"), ("1/2", None)], ids=str)
@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("name", ["documents", "sources", "answers"])
def test_jobs_that_commit_at_the_same_moment_lose_and_double_no_row_and_none_is_refused(
    job: JobConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    parts: tuple[str | None, str | None],
    has_begun: bool,
    name: str,
) -> None:
    """Another slice, or the whole job, runs just before one of the first commits."""
    if has_begun:
        answer(job)
        documents = (tmp_path / "in/all.jsonl").read_text()
        (tmp_path / "in/all.jsonl").write_text(documents.replace("Line", "Row"))
    one, other = (job.model_copy(update={"input": InputConfig(slice=part)}) for part in parts)
    commit = OutputTable.commit

    def commit_late(table: OutputTable, **arguments: Any) -> int:
        if table.name == name:
            monkeypatch.undo()
            answer(other)
        return commit(table, **arguments)

    monkeypatch.setattr(OutputTable, "commit", commit_late)
    answer(one)
    answer(job)
    whole = job.model_copy(update={"output": str(tmp_path / "whole")})
    answer(whole)
    assert answers(job.output) == answers(whole.output)
    for table in ("memories", "documents"):
        assert len(table_rows(job.output, table)) == len(table_rows(whole.output, table)) > 0
    assert main(["verify", job.output]) == 0


def test_question_about_an_attachment_is_asked_by_the_slice_that_has_its_file(tmp_path: Path, text_model: str) -> None:
    names = [f"mail-{number}.eml" for number in range(6)]
    (tmp_path / "in").mkdir()
    for name in names:
        message = EmailMessage()
        message.set_content(f"The mail {name}.")
        message.add_attachment(f"Attached to {name}.", filename="a.txt")
        (tmp_path / "in" / name).write_bytes(message.as_bytes())
    job = small_job(tmp_path, text_model, ask="Who?", input=InputConfig(format="files"))
    answer(job)
    ids = sorted({row["document_id"] for row in table_rows(job.output, "answers")})
    assert len(ids) == 2 * len(names)
    bound = [{"question": "When?", "document_id": name} for name in [*ids, "gone", "mail-0.eml/9-gone.txt"]]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, bound)))
    settings = {"questions": str(tmp_path / "questions.jsonl"), "ask": ()}
    outputs = [str(tmp_path / "one")] * 4 + [str(tmp_path / f"slice-{number}") for number in (1, 2)]
    for part, output in zip(["1/2", "2/2"] * 3, outputs, strict=True):
        config = InputConfig(format="files", slice=part)
        answer(job.model_copy(update={**settings, "input": config, "output": output}))
    for shown in (outputs[:1], outputs[4:]):
        rows = [row for output in shown for row in table_rows(output, "answers")]
        status = {row["document_id"]: row["status"] for row in rows}
        assert len(status) == len(rows) == len(bound)
        assert [name for name in status if status[name] != "ok"] == [name for name in status if "gone" in name]


def test_condition_with_other_questions_leaves_the_values_of_other_documents(job: JobConfig, tmp_path: Path) -> None:
    rows = [
        {"document_id": f"d{number}", "text": f"Line {number} of a text. " * 20, "year": year, "place": "here"}
        for number, year in enumerate([2025, 2026, 2026])
    ]
    (tmp_path / "in/all.jsonl").unlink()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in/all.parquet")
    typed = [{"question_id": name, "question": "Who?", "answer_type": "text"} for name in ("who", "whom")]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, typed)))
    answer(job.model_copy(update={"input": InputConfig(carry={"place": "place"})}))
    before = {row["document_id"]: row for row in table_rows(job.output, "results")}
    (tmp_path / "questions.jsonl").write_text(json.dumps(typed[0]))
    answer(job.model_copy(update={"input": InputConfig(where="year = 2026")}))
    after = {row["document_id"]: row for row in table_rows(job.output, "results")}
    assert after["d0"] == before["d0"]
    assert after["d0"]["place"] == "here"
    assert {after[name]["whom"] for name in ("d1", "d2")} == {None}
    assert main(["verify", job.output]) == 0
    answer(job)
    assert {"whom", "place"}.isdisjoint(table_rows(job.output, "results")[0])


def test_condition_leaves_the_questions_about_other_documents_as_they_are(job: JobConfig, tmp_path: Path) -> None:
    rows = [
        {"document_id": f"d{number}", "text": f"Line {number} of a text. " * 20, "year": year}
        for number, year in enumerate([2025, 2026, 2026])
    ]
    (tmp_path / "in/all.jsonl").unlink()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in/all.parquet")
    answer(job)
    before = answers(job.output)
    manifest = answer(job.model_copy(update={"input": InputConfig(where="year = 2026")}))
    assert manifest["counts"]["asked"] == manifest["counts"]["ok"] == 2
    assert answers(job.output) == before
    for year, count in ((2025, 2), (2026, 2), (2025, 2)):  # as many readings, of other documents
        each = answer(job.model_copy(update={"input": InputConfig(where=f"year = {year}")}))
        assert (each["counts"]["asked"], each["settings"]["input"]["where"]) == (count, f"year = {year}")
    assert answers(job.output) == before


def test_slices_in_several_outputs_are_read_as_one(
    job: JobConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(job)
    slices = read_in_slices(job, tmp_path)
    assert answers(*slices) == answers(job.output)
    capsys.readouterr()
    assert main(["page", *slices, "--to", str(tmp_path / "site")]) == 0
    written = json.loads(capsys.readouterr().out)
    assert (written["documents"], written["readings"]) == (NUM_DOCUMENTS, NUM_DOCUMENTS + 1)
    summary = json.loads((tmp_path / "site/summary.json").read_text())
    assert summary["readings"]["ok"] == NUM_DOCUMENTS + 1
    assert len(list((tmp_path / "site").glob("documents/*/*.html"))) == NUM_DOCUMENTS


def test_sheet_of_a_page_over_slices_is_taken_by_each_for_its_own_documents(
    job: JobConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = [*read_in_slices(job, tmp_path, count=2)]
    rows = [row for output in outputs for row in table_rows(output, "answers")]
    sheet = written_sheet(tmp_path, *rows)
    capsys.readouterr()
    assert [main(["review", "sign", output, str(sheet)]) for output in outputs] == [0, 0]
    one, other = map(json.loads, capsys.readouterr().out.splitlines())
    assert one["added"] + other["added"] == len(rows)
    assert (one["signed"], other["signed"]) == (one["readings"], other["readings"])


def test_diff_and_verify_take_the_outputs_of_slices_as_one_scan(
    job: JobConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "in/all.jsonl"
    new = json.dumps({"document_id": "new", "text": "A new text."})
    for lines in (file.read_text().splitlines(), [*file.read_text().splitlines()[:-1], new]):
        file.write_text("\n".join(lines))
        outputs = [*read_in_slices(job, tmp_path)]
    capsys.readouterr()
    assert main(["diff", *outputs, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    last = f"d{NUM_DOCUMENTS - 1}"
    assert sorted((row["document_id"], row["change"]) for row in rows) == [(last, "removed"), ("new", "added")]
    assert main(["diff", *outputs]) == 0
    counted, *runs = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert counted.endswith("1 new, 1 gone; 13 asked for before, 13 now")
    assert len(runs) == NUM_SLICES
    assert main(["diff", outputs[0], *outputs, outputs[0]]) == 2
    assert "are of the same documents; name two of them" in capsys.readouterr().err
    assert main(["verify", *outputs]) == 0
    assert capsys.readouterr().out.count("digest: ") == NUM_SLICES
    (Path(outputs[1]) / files_of(Path(outputs[1]), "memories")[0]).unlink()
    assert main(["verify", *outputs, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [len(each["problems"]) for each in found] == [0, 1, 0]


def test_slice_without_a_document_is_refused(job: JobConfig) -> None:
    with pytest.raises(InputError, match=r"slice 1/1000: divide the documents into fewer slices"):
        answer(in_slice(job, "1/1000"))


def test_slice_that_no_question_is_bound_to_asks_nothing_and_one_whose_document_is_gone_says_so(
    job: JobConfig, tmp_path: Path
) -> None:
    bound = [{"question": "When?", "document_id": name} for name in ("d0", "gone")]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, bound)))
    slices = read_in_slices(job, tmp_path)
    assert sorted(manifest["counts"]["asked"] for manifest in slices.values()) == [0, 1, 1]
    rows = [row for output in slices for row in table_rows(output, "answers")]
    assert sorted((row["document_id"], row["status"]) for row in rows) == [("d0", "ok"), ("gone", "failed")]
    assert main(["page", *slices, "--to", str(tmp_path / "site")]) == 0


def test_text_files_of_other_slices_are_not_opened(tmp_path: Path) -> None:
    names = [f"{number}.txt" for number in range(NUM_DOCUMENTS)]
    put_texts(tmp_path, dict.fromkeys(names, "text"))
    found = [
        source_names(Location(uri=str(tmp_path)), settings=InputConfig(slice=f"{number}/{NUM_SLICES}"))
        for number in range(1, NUM_SLICES + 1)
    ]
    assert sorted(name for of_slice in found for name in of_slice) == sorted(names)
    assert len(found) == NUM_SLICES
