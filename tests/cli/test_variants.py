from pathlib import Path

import pytest

from memagent_batch.cli.evaluate import RunSuite, read_variants, vary
from memagent_batch.cli.main import read_command
from memagent_batch.cli.settings import ReaderSettings


def base(*arguments: str) -> ReaderSettings:
    return read_command(RunSuite, ["--suite=s", "--output=o", *arguments]).part(ReaderSettings)


def test_settings_that_the_suite_sets_may_stand_in_a_shared_job_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.yaml").write_text(
        "documents: texts\nquestions: q.csv\ninput: {text_column: body}\nlimit: 20\nmodel: m\n"
    )
    monkeypatch.setenv("MEMAGENT_ASK", '["Who?"]')
    monkeypatch.setenv("MEMAGENT_LIMIT_SEED", "7")
    assert base("--config", str(tmp_path / "job.yaml")).agent.model == "m"


def test_vary_settings_go_over_the_base_group_by_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMAGENT_POLICY__MEMORY_TOKENS", "77")
    monkeypatch.setenv("MEMAGENT_OPENAI__API_KEY", "hunter2")
    given = base("--policy.chunk-tokens=100", "--policy.answer-tokens=50", "--model=m")
    varied = vary(given, {"policy": {"chunk_tokens": 200}, "window_tokens": 999}, name="v")
    assert (varied.policy.chunk_tokens, varied.policy.answer_tokens, varied.policy.memory_tokens) == (200, 50, 77)
    assert (varied.window_tokens, varied.model) == (999, "m")
    assert varied.openai.api_key is not None
    assert varied.openai.api_key.get_secret_value() == "hunter2"
    assert vary(given, {}, name="v") == given


def test_read_variants_names_and_settings_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "v.yaml").write_text("b: {policy: {chunk_tokens: 5}}\na:\n")
    assert list(read_variants(tmp_path / "v.yaml").items()) == [("b", {"policy": {"chunk_tokens": 5}}), ("a", {})]
