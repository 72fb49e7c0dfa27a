"""Mistakes of a user, as a table: what was given, the exit code, the one line on stderr. None of them starts Ray."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jobs import cli

ANSWER = ("answer", "--documents=texts", "--ask=Who?", "--output=out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A command that can't work, and how it is refused."""

    arguments: tuple[str, ...]
    """What follows `memagent`."""
    line: str
    """The line on stderr; `HERE` stands for the folder of the test."""
    code: int = 2
    """The exit code."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files in the current folder, beside texts/a.txt."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables."""


OPTIONS = {
    "no such command": Mistake(
        arguments=("asnwer",), line="error: there is no command 'asnwer' of memagent; did you mean answer?"
    ),
    "no such option": Mistake(
        arguments=("--verison",), line="error: there is no command '--verison' of memagent; see memagent --help"
    ),
    "misspelt option": Mistake(
        arguments=(*ANSWER, "--policy.chunk-token", "100"),
        line="error: there is no option --policy.chunk-token; did you mean --policy.chunk-tokens?",
    ),
    "misspelt option of status": Mistake(
        arguments=("status", "--ouptut", "out"), line="error: there is no option --ouptut; did you mean --output?"
    ),
    "option of nothing": Mistake(
        arguments=(*ANSWER, "--xyzzy"), line="error: there is no option --xyzzy; see memagent answer --help-all"
    ),
    "glob that the shell expands behind =": Mistake(
        arguments=("answer", "--documents=texts/a.txt", "texts/b.txt", "--ask=Who?", "--output=out"),
        line="error: 'texts/b.txt' belongs to no option; quote a value that has spaces or wildcards",
    ),
    "option without its value": Mistake(
        arguments=(*ANSWER, "--model"), line="error: --model: expected one argument; see memagent answer --help"
    ),
    "no documents": Mistake(
        arguments=("answer", "--ask=Who?", "--output=out"),
        line="error: documents: missing; give --documents, or set it in the job file",
    ),
    "no question": Mistake(
        arguments=("answer", "--documents=texts", "--output=out"),
        line="error: no question: give --questions, --ask or --input.question-column",
    ),
    "no output of a suite": Mistake(
        arguments=("evaluate", "run", "--output=out"), line="error: --suite: missing; see memagent evaluate run --help"
    ),
    "documents beside a suite": Mistake(
        arguments=("evaluate", "run", "--suite=s", "--output=out", "--documents=texts"),
        line="error: --documents: the suite brings documents and questions; leave it out",
    ),
    "speed that is none": Mistake(
        arguments=("plan", *ANSWER[1:], "--tokens-per-second=0"),
        line="error: --tokens-per-second: 0 is no number above 0",
    ),
    "price without speed": Mistake(
        arguments=("plan", *ANSWER[1:], "--price-per-hour=1"),
        line="error: --price-per-hour needs --tokens-per-second, the speed of one replica",
    ),
    "storage options that are no JSON": Mistake(
        arguments=(*ANSWER, "--storage-options=key"),
        line="error: --storage-options is not JSON (Expecting value: line 1 column 1 (char 0)); write it as "
        '{"key": "value"}',
    ),
    "trainer that is none": Mistake(
        arguments=("export", "--rollouts=r", "--to=vrl"), line="error: --output: missing; see memagent export --help"
    ),
}
VALUES = {
    "number that is none": Mistake(
        arguments=(*ANSWER, "--window-tokens=wide"), line="error: window_tokens: 'wide' is no whole number"
    ),
    "number that is too small": Mistake(
        arguments=(*ANSWER, "--policy.chunk-tokens=0"), line="error: policy.chunk_tokens: 0 is below 1, the least"
    ),
    "share above one": Mistake(
        arguments=(*ANSWER, "--vllm.gpu-memory-utilization=2"),
        line="error: vllm.gpu_memory_utilization: 2 is above 1.0, the most",
    ),
    "choice that is none": Mistake(
        arguments=(*ANSWER, "--engine=vlm"),
        line="error: engine: 'vlm' is none of 'vllm', 'openai' or 'simulated'; did you mean vllm?",
    ),
    "model folder that is not there": Mistake(
        arguments=(*ANSWER, "--model=/nowhere/model"),
        line="error: model: there is no folder /nowhere/model on this machine; check the path on every node",
    ),
    "reward without permission": Mistake(
        arguments=("collect", *ANSWER[1:], "--rollouts.reward=a:b"),
        line="error: rollouts: reward: 'a:b' is code of yours; say --rollouts.allow-reward-code to run it",
    ),
}
FILES = {
    "job file that is not there": Mistake(
        arguments=(*ANSWER, "--config=job.yaml"), line="error: --config: job.yaml is not there"
    ),
    "job file that is a folder": Mistake(
        arguments=(*ANSWER, "--config=texts"), line="error: --config: texts is a folder; name a YAML file in it"
    ),
    "job file with a misspelt knob": Mistake(
        arguments=(*ANSWER, "--config=job.yaml"),
        files={"job.yaml": "policy: {chunk_token: 7}"},
        line="error: policy.chunk_token: there is no such knob; did you mean policy.chunk_tokens?",
    ),
    "job file with a value for a group": Mistake(
        arguments=(*ANSWER, "--config=job.yaml"),
        files={"job.yaml": "policy: overwrite"},
        line="error: policy: this is a group of knobs; write them as {name: value}",
    ),
    "job file with a number for a list": Mistake(
        arguments=(*ANSWER[:2], "--output=out", "--config=job.yaml"),
        files={"job.yaml": "ask: 5"},
        line="error: ask: this is no list; write it as [a, b]",
    ),
    "variable that is misspelt": Mistake(
        arguments=ANSWER,
        variables={"MEMAGENT_POLICY__CHUNK_TOKEN": "7"},
        line="error: policy.chunk_token: there is no such knob; did you mean policy.chunk_tokens?",
    ),
    "variable of no knob": Mistake(
        arguments=ANSWER,
        variables={"MEMAGENT_MODLE": "x"},
        line="error: environment variable MEMAGENT_MODLE: there is no knob 'modle'; did you mean MEMAGENT_MODEL?",
    ),
    "output without a run": Mistake(
        arguments=("status", "--output=HERE/texts"), line="error: output: there is no run at HERE/texts (no run.json)"
    ),
    "output of something else": Mistake(
        arguments=("answer", "--documents=texts", "--ask=Who?", "--output=mine"),
        line="error: output: mine holds other files (HERE/mine/notes.txt, 1 in all) and no run.json; "
        "choose an empty folder",
        files={"mine/notes.txt": "years of work"},
    ),
    "output among the documents": Mistake(
        arguments=("answer", "--documents", "mine", "texts", "--ask=Who?", "--output=texts/out"),
        line="error: output: texts/out lies inside the documents texts, so that the next run would read its tables as "
        "documents; choose an output beside them",
        files={"mine/notes.txt": "years of work"},
    ),
    "difference without an output": Mistake(
        arguments=("diff",), line="error: --output: missing; say where the runs wrote, or give two outputs"
    ),
}
TABLE = OPTIONS | VALUES | FILES


@pytest.mark.parametrize("mistake", TABLE.values(), ids=TABLE)
def test_mistake_is_one_line_with_its_exit_code(
    mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in {"texts/a.txt": "Ann signed.", **mistake.files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name, value in mistake.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    before = sorted(os.walk(tmp_path))
    assert cli.main([argument.replace("HERE", str(tmp_path)) for argument in mistake.arguments]) == mistake.code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"{mistake.line.replace('HERE', str(tmp_path))}\n"
    assert sorted(os.walk(tmp_path)) == before
