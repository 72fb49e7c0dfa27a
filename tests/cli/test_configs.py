from pathlib import Path

import pytest

from memagent_batch.cli.answer import Answer
from memagent_batch.cli.main import asks_for_json, main, read_command
from memagent_batch.cli.options import JOB_FILES
from memagent_batch.loop.engines.vllm.start import engine_arguments

WHOLE = {"bucket", "smoke"}
"""Job files that say everything; the others leave documents, question and output to the command line."""
GIVEN = ["--documents=docs", "--ask=Who?", "--output=run"]


@pytest.mark.parametrize("config", sorted(JOB_FILES.glob("*.yaml")), ids=lambda path: path.stem)
def test_job_file_is_read_as_settings(config: Path) -> None:
    given = [] if config.stem in WHOLE else GIVEN
    settings = read_command(Answer, ["--config", str(config), *given])
    assert settings.output


def test_job_file_of_the_project_is_found_by_its_name_unless_there_is_such_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_command(Answer, ["--config", "tiny", *GIVEN]).window_tokens == 2048
    Path("tiny").write_text("window_tokens: 999")
    assert read_command(Answer, ["--config", "tiny", *GIVEN]).window_tokens == 999


def test_job_files_are_merged_in_their_order_group_by_group(tmp_path: Path) -> None:
    for name, text in {
        "one": "window_tokens: 999\nlog_format: json\npolicy: {chunk_tokens: 100, memory_tokens: 50}\nask: [a, b]",
        "two": "window_tokens: 888\npolicy: {chunk_tokens: 70}\nask: [third]",
    }.items():
        (tmp_path / name).write_text(text)
    words = ["--documents=docs", "--output=run", "--config", f"{tmp_path}/one", f"--config={tmp_path}/two"]
    settings = read_command(Answer, [*words, "--window-tokens=777"])
    assert (settings.window_tokens, settings.policy.chunk_tokens, settings.policy.memory_tokens) == (777, 70, 50)
    assert settings.ask == ("third",)
    assert asks_for_json(words)


@pytest.mark.parametrize("command", ["plan", "answer"])
def test_bundled_model_with_another_policy_than_that_of_its_job_file_is_warned_of(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.txt").write_text("Ann signed.")
    words = [command, f"--documents={tmp_path}/docs", "--ask=Who?", "--engine=simulated", "--tokenizer=tiny"]
    assert main([*words, f"--output={tmp_path}/one", "--model=reader-135m", "--policy.kind=gated"]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "was trained with" in line]
    assert "reader-135m was trained with the settings of --config reader, and this job has others: policy.chunk" in line
    assert main([*words, f"--output={tmp_path}/two", "--config=reader"]) == 0
    assert "was trained with" not in capsys.readouterr().err


def test_null_as_the_memory_of_a_file_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "job").write_text("ingest: {memory_mib: null}")
    settings = read_command(Answer, [f"--config={tmp_path}/job", *GIVEN])
    assert settings.ingest == read_command(Answer, GIVEN).ingest


@pytest.mark.parametrize("config", sorted(JOB_FILES.glob("gpu-*.yaml")), ids=lambda path: path.stem)
def test_gpu_job_file_keeps_its_readings_within_a_step(config: Path) -> None:
    job = read_command(Answer, ["--config", str(config), *GIVEN])
    assert job.pool.readings_in_flight <= job.agent.vllm.max_num_seqs


@pytest.mark.vllm
@pytest.mark.parametrize("config", sorted(JOB_FILES.glob("gpu-*.yaml")), ids=lambda path: path.stem)
def test_gpu_job_file_gives_arguments_that_vllm_has(
    config: Path, tiny_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "g++")
    agent = read_command(Answer, ["--config", str(config), *GIVEN]).agent
    arguments = engine_arguments(
        agent.vllm, model=tiny_model, tokenizer=None, window_tokens=agent.window_tokens, sampling=agent.sampling
    )
    assert arguments["max_num_seqs"] == agent.vllm.max_num_seqs
