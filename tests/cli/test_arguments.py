import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest
from pydantic import BaseModel

from memagent_batch.cli import main as cli
from memagent_batch.cli.answer import Answer
from memagent_batch.cli.collect import Collect
from memagent_batch.cli.main import read_command
from memagent_batch.cli.page import Page
from memagent_batch.cli.plan import PlanRun
from memagent_batch.cli.settings import Command, JobSettings
from memagent_batch.cli.show import Show
from memagent_batch.cli.status import ShowStatus
from memagent_batch.config.agent import AgentConfig, PolicyConfig
from memagent_batch.config.job import JobConfig
from memagent_batch.config.section import fields_of
from memagent_batch.errors import SettingsError

GIVEN = ["--documents=docs", "--ask=Who?", "--output=run"]
HEAVY = ["ray", "vllm", "torch", "transformers"]
HALF_HEAVY = ["tokenizers", "pyarrow", "numpy"]
"""Only the commands that everybody uses do without these."""


def parse(*arguments: str, given: Sequence[str] = GIVEN) -> Answer:
    return read_command(Answer, [*given, *arguments])


def test_question_that_is_no_valid_unicode_is_refused() -> None:
    with pytest.raises(SettingsError, match="ask, number 2: this is not valid UTF-8"):
        parse("--ask", "a\udcff?")


def test_read_command_prefers_command_line_to_environment_to_job_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.yaml").write_text("window_tokens: 1\npolicy: {chunk_tokens: 1, memory_tokens: 1}\nmodel: m\n")
    config = f"--config={tmp_path / 'job.yaml'}"
    settings = parse(config)
    assert (settings.window_tokens, settings.policy.chunk_tokens, settings.policy.memory_tokens) == (1, 1, 1)
    monkeypatch.setenv("MEMAGENT_WINDOW_TOKENS", "2")
    monkeypatch.setenv("MEMAGENT_POLICY__CHUNK_TOKENS", "2")
    settings = parse(config)
    assert (settings.window_tokens, settings.policy.chunk_tokens, settings.policy.memory_tokens) == (2, 2, 1)
    settings = parse(config, "--policy.chunk-tokens=3")
    assert (settings.window_tokens, settings.policy.chunk_tokens, settings.policy.memory_tokens) == (2, 3, 1)
    assert settings.model == "m"


def test_command_without_settings_takes_storage_options_of_the_environment_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MEMAGENT_STORAGE_OPTIONS__SECRET", "hunter2")
    monkeypatch.setenv("MEMAGENT_OUTPUT", "elsewhere")
    monkeypatch.setenv("MEMAGENT_STORAGE_OPTIONS", '{"key": "k"}')
    status = read_command(ShowStatus, ["out", "--storage-options", '{"key": "other"}'])
    assert status.output == "out"
    assert status.storage_options == {"key": "other", "secret": "hunter2"}
    monkeypatch.setenv("MEMAGENT_STORAGE_OPTIONS", "hunter2")
    with pytest.raises(SettingsError, match="MEMAGENT_STORAGE_OPTIONS is not JSON") as refused:
        read_command(ShowStatus, ["out"])
    assert "hunter2" not in str(refused.value)


CONDITION = "confidence < 0.8, or not"
QUESTION = 'Who, "what", and [why] of --rollouts.group-size?'


@pytest.mark.parametrize(
    ("kind", "words", "expected"),
    [
        (Page, ["out", "--yes", "--to", "site"], {"output": ("out",), "yes": True, "to": "site"}),
        (Page, ["--yes", "out", "--to=site"], {"output": ("out",), "yes": True, "to": "site"}),
        (Page, ["--yes=true", "out"], {"output": ("out",), "yes": True}),
        (Page, ["--output", "out", "--yes", "true"], {"output": ("out",), "yes": True}),
        (
            Show,
            ["contract-7.txt", "--output", "out", "notice"],
            {"output": "out", "document": "contract-7.txt", "question": "notice"},
        ),
        (Collect, [*GIVEN, "--ask", QUESTION], {"ask": ("Who?", QUESTION)}),
        (Answer, [*GIVEN, "--documents", "a", "b", "--documents=c, d"], {"documents": ("docs", "a", "b", "c, d")}),
        *(
            (Answer, [*GIVEN, "--again-from=out", *words], {"again_where": CONDITION})
            for option in ("--where", "--again-where", "--again_where")
            for words in ([option, CONDITION], [f"{option}={CONDITION}"])
        ),
    ],
)
def test_words_go_to_the_options_that_they_name_and_stay_whole(
    kind: type[Command], words: list[str], expected: dict[str, object]
) -> None:
    command = read_command(kind, words)
    assert {name: getattr(command, name) for name in expected} == expected


def test_settings_of_a_job_file_are_shared_by_commands_and_options_of_one_are_refused_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = f"--config={tmp_path / 'job.yaml'}"
    (tmp_path / "job.yaml").write_text("rollouts: {group_size: 4}\nfollow_ups: {evidence: true}\ndocuments: [a, b]\n")
    monkeypatch.setenv("MEMAGENT_ROLLOUTS__GROUP_SIZE", "5")
    settings = parse(config, given=["--ask=Who?", "--output=o"])
    assert (settings.follow_ups.evidence, settings.documents) == (True, ("a", "b"))
    for words in (["--no-follow-ups.evidence"], ["--follow-ups.evidence", "false"]):
        assert not parse(config, *words).follow_ups.evidence
    assert read_command(Collect, [config, *GIVEN]).rollouts.group_size == 5
    (tmp_path / "job.yaml").write_text("json: true\n")
    with pytest.raises(SettingsError, match="json: there is no such setting"):
        read_command(PlanRun, [*GIVEN, config])


def test_configurations_built_in_python_never_look_at_the_environment_and_know_what_was_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MEMAGENT_POLICY__CHUNK_TOKENS", "99")
    monkeypatch.setenv("MEMAGENT_MODEL", "m")
    monkeypatch.setenv("MEMAGENT_OUTPUT", "elsewhere")
    agent, job = AgentConfig(), JobConfig(documents="docs", ask=("Who?",), output="run")
    assert (agent.model, agent.policy.chunk_tokens, job.agent, job.output) == ("tiny", 5000, agent, "run")
    read = parse().job().agent
    assert read == AgentConfig(model="m", policy=PolicyConfig(chunk_tokens=99))
    assert (read.model_fields_set, read.policy.model_fields_set) == ({"model", "policy"}, {"chunk_tokens"})


@pytest.mark.parametrize("line", ["api_key: hunter2: x", "api_key: *hunter2", 'api_key: "hunter2'])
def test_read_command_job_file_that_is_no_yaml_is_refused_with_its_line_alone(tmp_path: Path, line: str) -> None:
    config = tmp_path / "job.yaml"
    config.write_text(f"openai:\n  {line}\n")
    with pytest.raises(SettingsError, match=r"can't be read as YAML: line [23]") as refused:
        parse("--config", str(config))
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("command", "settings", "unused"),
    [
        ("answer", JobSettings, ("rollouts",)),
        ("plan", JobSettings, PlanRun.unused),
        ("collect", JobSettings, Collect.unused),
    ],
)
def test_help_all_lists_every_setting_that_the_command_uses(
    command: str, settings: type[BaseModel], unused: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*command.split(), "--help-all"]) == 0
    shown = re.findall(r"(--[a-z0-9._-]+)[ ,\n]", capsys.readouterr().out)
    hidden = tuple(f"{name.replace('_', '-')}." for name in unused)
    names = (name.replace("_", "-") for name, _, _ in fields_of(settings))
    used = {f"--{setting}" for setting in names if not f"{setting}.".startswith(hidden)}
    assert used | {"--config"} <= set(shown)
    assert not [option for option in shown if f"{option.removeprefix('--')}.".startswith(hidden)]


@pytest.mark.parametrize("kind", [*map(cli.command_class, cli.COMMANDS)], ids=lambda kind: kind.command)
def test_help_shows_no_types_of_the_code_and_examples_that_are_understood(
    kind: type[Command], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text("documents: texts\nask: Who?\noutput: out\n")
    assert cli.main([*kind.command.split()[1:], "--help"]) == 0
    shown = capsys.readouterr().out
    assert not re.findall(r"tuple\[|dict\[|default factory|\bNone\b|\{\}|VLLM\b,", shown)
    assert kind.examples
    for example in kind.examples:
        assert f"\n  {example}\n" in shown
        name, words = cli.split_name(shlex.split(example.partition(" | ")[0])[1:])
        assert cli.command_class(name) is kind
        assert isinstance(read_command(kind, words), kind)


def test_main_tells_its_version_for_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert [cli.main(arguments) for arguments in (["--version"], ["answer", "--version"])] == [0, 0]
    assert capsys.readouterr().out.splitlines() == [f"memagent-batch {version('memagent-batch')}"] * 2


@pytest.mark.parametrize("group", [[], ["evaluate"]])
def test_main_without_a_name_lists_the_names(group: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(group) == 2
    assert capsys.readouterr().err.startswith(f"error: say what to do: {' '.join(['memagent', *group])} NAME\n")


@pytest.mark.parametrize("arguments", [["--help"], ["answer", "--help-all"]], ids=["short", "beyond a buffer"])
def test_help_into_a_closed_pipe_shows_no_traceback(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "memagent_batch", *arguments]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_commands_import_nothing_heavy_before_their_work() -> None:
    others = [[*name.split(), "--help"] for name in cli.COMMANDS]
    watched = f"""
import json, sys
from memagent_batch.cli import main as cli
loaded = []
def run(heavy, *arguments):
    cli.main(list(arguments))
    loaded.extend([arguments, name] for name in heavy if name in sys.modules)
for arguments in (["--help"], ["answer", "--no-such-option"], ["collect", "--help"]):
    run({[*HEAVY, *HALF_HEAVY]!r}, *arguments)
for arguments in {others!r}:
    run({HEAVY!r}, *arguments)
print(json.dumps(loaded))
"""
    done = subprocess.run([sys.executable, "-c", watched], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []
