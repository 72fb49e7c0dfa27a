"""The pipelines that users copy, run on small inputs with an engine that needs no model."""

import subprocess
import sys
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import memagent_batch as ma
from memagent_batch.data.documents import listing
from memagent_batch.errors import SettingsError
from pipelines import compliance_scan, licence_scan, question_list, rollouts
from tests.api.conftest import agent_of
from tests.flows.training import drawing_engine

ROOT = Path(__file__).parents[2]
CONTRACTS = {
    "lease.html": "<html><body><h1>Lease</h1><p>Either party may end it with a notice of 30 days.</p></body></html>",
    "supply.txt": "The liability of the supplier is limited to the price. The laws of Norway govern it.",
}


def test_compliance_scan_gives_documents_answers_changes_pages_and_a_sample(
    text_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "UNSURE_SECONDS", 0.0)  # the second night's pages know the table by its list
    files, output = tmp_path / "contracts", tmp_path / "scan"
    files.mkdir()
    for name, text in CONTRACTS.items():
        (files / name).write_text(text)
    agent = agent_of(text_model)
    first = compliance_scan.scan(str(files), str(output), agent)
    assert first.manifest["counts"]["ok"] == len(CONTRACTS) * len(compliance_scan.QUESTIONS)
    assert (output / "pages" / "index.html").exists()
    assert list((output / "review").glob("liability-cap-*/labels.csv"))
    assert f"what needs a look: {output}/pages/summary.txt" in capsys.readouterr().out
    (files / "new.txt").write_text("The laws of Denmark govern it.")
    second = compliance_scan.scan(str(files), str(output), agent)
    assert second.manifest["changes"]["documents"] == {"added": 1, "changed": 0, "removed": 0, "unchanged": 2}
    said = (output / "pages/summary.txt").read_text()
    assert "3 were read in this run" in said
    assert "Documents: 1 new, 0 changed, 0 gone, 2 as before." in said


def test_licence_scan_reads_the_environment_and_lists_packages_that_declare_something_else(
    text_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installed = licence_scan.packages()
    declared = {row["document_id"]: row["declared"] for row in installed.to_pylist()}
    assert declared["pytest"] == "MIT"
    assert declared["packaging"] == "Apache-2.0 BSD-2-Clause"
    rows = [row for row in installed.to_pylist() if row["document_id"] in ("pytest", "packaging", "ruff")]
    texts = pa.Table.from_pylist([{**row, "text": row["text"][:300]} for row in rows], installed.schema)
    undeclared = pa.Table.from_pylist([{"document_id": "x", "text": "no terms", "declared": ""}], installed.schema)
    run = licence_scan.scan(pa.concat_tables([texts, undeclared]), str(tmp_path), agent_of(text_model))
    read = {row["document_id"]: row for row in run.results().to_pylist()}
    assert read.keys() == {"pytest", "packaging", "ruff", "x"}
    said = {name: [row["licence"]] if name != "packaging" else row["licences"] or [] for name, row in read.items()}
    shown = capsys.readouterr().out
    assert "(package, what it declares, what was read, the sentence):\n" in shown
    listed = {line.split("\t")[0] for line in shown.splitlines() if "\t" in line}
    differ = {name for name in said if declared.get(name) and {*said[name]} != {*declared[name].split()}}
    assert listed == differ
    assert listed
    assert {row["declared"] for row in run.answers().to_pylist()} >= {"MIT", "Apache-2.0 BSD-2-Clause"}
    assert (tmp_path / "pages" / "index.html").exists()


def test_question_list_makes_a_table_of_a_lake_from_two_others(text_model: str, tmp_path: Path) -> None:
    questions, documents, answers = (str(tmp_path / name) for name in ("questions", "documents", "answers"))
    write_deltalake(documents, pa.table({"document_id": ["a", "b"], "text": ["A dog runs.", "A cat sleeps."]}))
    write_deltalake(questions, pa.table({"question_id": ["who"], "question": ["Who runs?"], "topic": ["dogs"]}))
    agent, work = agent_of(text_model), str(tmp_path / "work")
    question_list.ask(questions, documents, answers, work=work, agent=agent)
    write_deltalake(
        questions, pa.table({"question_id": ["what"], "question": ["What is it?"], "topic": ["cats"]}), mode="append"
    )
    run = question_list.ask(questions, documents, answers, work=work, agent=agent)
    assert run.manifest["changes"]["readings"]["read"] == 2
    rows = DeltaTable(answers).to_pyarrow_table().select(["document_id", "question_id", "status"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [
        (document, question, "ok") for document in ("a", "b") for question in ("what", "who")
    ]


def test_rollouts_are_a_file_for_a_trainer(text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollouts, "ROLLOUTS", ma.RolloutConfig(group_size=2, reward="em"))
    pq.write_table(pa.table({"document_id": ["a"], "text": ["A dog runs."]}), tmp_path / "documents.parquet")
    listed = {"question_id": ["who"], "question": ["Who runs?"], "references": [[drawing_engine.RIGHT]]}
    pq.write_table(pa.table(listed), tmp_path / "questions.parquet")
    file = rollouts.collect(
        str(tmp_path / "documents.parquet"),
        str(tmp_path / "questions.parquet"),
        str(tmp_path / "rollouts"),
        agent_of(text_model).model_copy(update={"engine": drawing_engine.KIND}),
        trainer="trl",
    )
    assert set(pq.read_table(file)["sample"].to_pylist()) == {0, 1}


def test_calls_have_no_name_of_a_part_of_the_package_which_would_hide_them() -> None:
    assert not set(ma.__all__) & {module.name for module in iter_modules(ma.__path__)}


@pytest.mark.parametrize("setting", [{"executor": "here"}, {"max_failed_share": 2}])
def test_ingest_with_a_wrong_setting_is_refused_by_its_name(tmp_path: Path, setting: dict[str, Any]) -> None:
    (name,) = setting
    with pytest.raises(SettingsError, match=f"^{name}: "):
        ma.ingest_files(tmp_path, output=tmp_path / "out", **setting)


@pytest.mark.parametrize("name", ["compliance_scan", "licence_scan", "question_list", "rollouts", "train_policy"])
def test_pipeline_says_how_it_is_run(name: str) -> None:
    command = [sys.executable, f"pipelines/{name}.py", "--help"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f"python pipelines/{name}.py" in shown
