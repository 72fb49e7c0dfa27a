"""A model that is replaced overnight under the same name: what is said of it, and what is read again."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.cli.main import main
from tests.engines.misbehaving_server import Fault, after, always, completion, misbehaving_server, of_readings, shown
from tests.engines.scripted_server import Reply, Script
from tests.jobs import put_texts, small_arguments
from tests.tables import table_rows

CREATED = 1_700_000_000
FILTERED = "FILTERED"
LONG = " ".join(f"and word {number} of the first part" for number in range(60))
NIGHT_1 = {"same.txt": "A short text.", "grown.txt": LONG, "filtered.txt": f"A text that is {FILTERED}."}
NIGHT_2 = {**NIGHT_1, "grown.txt": f"{LONG} MORE", "new.txt": "Another text."}
CHANGE = "version was 1.0, now 2.0"


def reply(status: int = 200, **body: Any) -> Reply:
    return Reply(status=status, body=json.dumps(body).encode())


def build(name: str, *, filters: bool = False) -> Fault:
    """Writes its name as memory and answer; one that filters answers nothing about some texts."""

    def answered(body: dict[str, Any], text: str) -> Reply:
        if filters and FILTERED in shown(body):
            return completion("", body, finish_reason="content_filter")
        return completion(f"\\boxed{{{name}}}", body)

    return answered


@contextmanager
def server(version: str, fault: Fault, **model: Any) -> Iterator[Script]:
    with misbehaving_server(fault) as script:
        script.models = reply(data=[{"id": "other"}, {"id": "tiny", "owned_by": "vllm", "created": CREATED, **model}])
        script.version = reply(version=version)
        yield script


def night(folder: Path, script: Script, texts: dict[str, str], **settings: Any) -> int:
    put_texts(folder / "in", texts)
    arguments = small_arguments(
        folder,
        "tiny",
        tokenizer="tiny",
        engine="openai",
        openai={"api": "chat", "base_url": script.base_url, "check_window": False},
        window_tokens=6000,
        ask=[{"question_id": "q", "question": "Who?"}],
        max_failed_share=0.9,
        policy={"chunk_tokens": 400},
        **settings,
    )
    return main(["answer", *arguments])


def prompts_with(script: Script, words: str) -> int:
    return sum(words in shown(body) for body in script.requests)


def records(folder: Path) -> list[dict[str, Any]]:
    rows = sorted(table_rows(folder / "run", "runs"), key=lambda row: row["run_id"])
    return [json.loads(row["record"]) for row in rows]


def differences(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, list[str]]:
    capsys.readouterr()
    assert main(["diff", str(folder / "run"), "--json"]) == 0
    return {row["document_id"]: row["why"] for row in map(json.loads, capsys.readouterr().out.splitlines())}


def test_model_that_is_replaced_overnight_is_said_and_reads_only_what_is_new(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with server("1.0", build("A", filters=True)) as first:
        assert night(tmp_path, first, NIGHT_1) == 0
    assert "endpoint is not as it was" not in capsys.readouterr().err
    with server("2.0", build("B"), root="/models/b") as second:
        assert night(tmp_path, second, NIGHT_2, retry_failed=True) == 0
        said = capsys.readouterr().err
        assert f"{CHANGE}. Of 4 readings this run reads 3; the other answers, and the turns that the log has" in said
        assert prompts_with(second, "A short text") == 0
        assert prompts_with(second, "word 1 of the first part") == 0, "turns of unchanged chunks are in the log"
        assert prompts_with(second, "MORE") == 1
        answers = {row["document_id"]: row["answer"] for row in table_rows(tmp_path / "run", "answers")}
        assert answers == {"same.txt": "A", "grown.txt": "B", "filtered.txt": "B", "new.txt": "B"}
        why = {"grown.txt": ["document", "endpoint"], "filtered.txt": ["endpoint"], "new.txt": ["document"]}
        assert differences(tmp_path, capsys) == why
        num_requests = len(second.requests)
        assert night(tmp_path, second, {**NIGHT_2, "newer.txt": "One more text."}) == 0
        assert "endpoint is not as it was" not in capsys.readouterr().err
        assert differences(tmp_path, capsys) == {"newer.txt": ["document"]}
        assert night(tmp_path, second, NIGHT_2, weights_version="b") == 0
        assert "endpoint is not as it was" not in capsys.readouterr().err, "the agent is another one, which is said"
        assert len(second.requests) > num_requests
        assert {row["answer"] for row in table_rows(tmp_path / "run", "answers")} == {"B"}
    model = {"id": "tiny", "owned_by": "vllm", "created": CREATED}
    assert [each["endpoint"] for each in records(tmp_path)[:2]] == [
        {**model, "version": "1.0"},
        {**model, "version": "2.0", "root": "/models/b"},
    ]


def test_model_that_is_replaced_between_a_run_that_stopped_and_the_next_one_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with server("1.0", after(3, always(Reply(status=401)))) as first:
        assert night(tmp_path, first, NIGHT_1) == 2
    with server("2.0", build("B")) as second:
        assert night(tmp_path, second, NIGHT_1) == 0
    assert f"{CHANGE}. Of 3 readings this run reads 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("models", "version", "known"),
    [
        (Reply(status=404), Reply(status=404), None),
        (Reply(status=404), reply(version="1.0"), {"version": "1.0"}),
        (Reply(body=b"<html>Login</html>"), Reply(body=b"<html>Login</html>"), None),
        ("created now", reply(503), {"id": "tiny"}),
    ],
    ids=["neither", "version alone", "pages", "model alone, created now"],
)
def test_server_that_says_little_of_itself_is_read_through_all_the_same(
    models: Reply | str,
    version: Reply,
    known: dict[str, Any] | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if isinstance(models, str):
        models = reply(data=[{"id": "tiny", "created": int(time.time()), "meta": {}}])
    with misbehaving_server(of_readings(lambda text: {})) as script:
        script.models, script.version = models, version
        assert night(tmp_path, script, NIGHT_1) == 0
        assert night(tmp_path, script, NIGHT_2) == 0
    assert [each["endpoint"] for each in records(tmp_path)] == [known, known]
    assert "endpoint is not as it was" not in capsys.readouterr().err
