"""Reading from Python: the public names, one engine of the agent's own, in scripts and where a loop runs already."""

import asyncio
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import memagent_batch as ma
from memagent_batch.errors import (
    DocumentError,
    EngineStartError,
    InputError,
    MemagentError,
    QuestionTooLongError,
    SettingsError,
)
from memagent_batch.loop.policies.overwrite import OverwritePolicy
from memagent_batch.loop.prompts import PromptTokens
from memagent_batch.plugins import POLICIES
from memagent_batch.types import Document, QuestionTokens, Status, Turns
from tests import unstating_engine
from tests.api.conftest import agent_of, run_local, table_of

CODE = "4071936"
TEXT = f"{'It rained. ' * 150}The access code of quiet-harbour is {CODE}. {'It rained. ' * 150}"
QUESTION = "What is the access code of quiet-harbour?"
NO_VLLM = r"vLLM is not installed: install memagent-batch\[cpu\] or memagent-batch\[gpu\], or set engine: openai"


def test_public_names_are_all_there_and_loaded_when_used() -> None:
    script = "import sys, memagent_batch; print([*{'ray', 'pyarrow', 'pydantic'} & sys.modules.keys()])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
    assert all(getattr(ma, name) is not None for name in ma.__all__)
    named = [getattr(ma, kind.capitalize())() for kind in POLICIES.built_in]
    assert [policy.kind for policy in named] == [*POLICIES.built_in]
    with pytest.raises(AttributeError, match="no name 'Nothing'"):
        _ = ma.Nothing  # type: ignore[attr-defined]


async def test_reading_has_answer_memory_turns_and_costs_also_where_an_event_loop_runs(text_model: str) -> None:
    assert asyncio.get_running_loop().is_running()  # as in a notebook
    with agent_of(text_model).open() as reader:
        reading = reader.read(TEXT, QUESTION)
    assert (reading.status, reading.answer, reading.error) == (Status.OK, "simulated", None)
    assert reading.memory is not None
    assert [turn.kind for turn in reading.turns] == ["update"] * (len(reading.turns) - 1) + ["answer"]
    assert reading.costs.num_turns == len(reading.turns) > 2
    spans = [(turn.char_start, turn.char_end) for turn in reading.turns[:-1]]
    assert spans[0][0] == 0
    assert spans[-1][1] == len(TEXT)
    assert all(before[1] == after[0] for before, after in pairwise(spans))


def test_reading_that_fails_is_a_value_and_costs_no_other(text_model: str) -> None:
    with agent_of(text_model).open() as reader:
        failed, fine = reader.read(TEXT, "why " * 500), reader.read(TEXT, QUESTION)
    assert (failed.status, failed.answer) == (Status.FAILED, None)
    assert isinstance(failed.error, QuestionTooLongError)
    assert fine.status is Status.OK


class FaultyPolicy(OverwritePolicy):
    """A stranger's policy with a fault."""

    async def read(self, document: Document, question: QuestionTokens, *, prompts: PromptTokens, turns: Turns) -> Any:
        return self._look_up({})

    def _look_up(self, table: dict[str, int]) -> int:
        return table["absent"]


def test_fault_of_a_policy_is_given_and_logged_with_the_place_where_it_happened(
    text_model: str, caplog: pytest.LogCaptureFixture
) -> None:
    agent = agent_of(text_model)
    policy = agent.policy.model_copy(update={"kind": f"{__name__}:FaultyPolicy"})
    with agent.model_copy(update={"policy": policy}).open() as reader:
        failed = reader.read(TEXT, QUESTION)
    assert isinstance(failed.error, KeyError)
    assert traceback.extract_tb(failed.error.__traceback__)[-1].name == "_look_up"
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [failed.error]


def test_reader_gives_the_value_and_the_sentences_of_the_job(text_model: str, tmp_path: Path) -> None:
    agent, text = agent_of(text_model), "It rained.\r\nIt is simulated 😀 here. Ann signed."
    follow_ups = ma.FollowUpConfig(evidence=True, support=True)
    question = ma.Question(question_id="price", question="How much?", type=ma.Number(unit="EUR"))
    how: dict[str, Any] = {"output": tmp_path / "scan", "agent": agent, "follow_ups": follow_ups}
    run = run_local(documents=table_of({"d": text}), questions=[question], **how)
    (row,) = run.answers().to_pylist()
    with agent.open(follow_ups=follow_ups) as reader:
        read = reader.read(text, "How much?", type=ma.Number(unit="EUR"))
        free = reader.read(text, "How much?")
    names = ("answer", "value_status", "support", "support_probability", "coverage", "confidence", "follow_up_error")
    assert {name: getattr(read, name) for name in names} == {name: row[name] for name in names}
    assert read.value == row["value_number"] == 0
    chosen = [each for each in run.evidence().to_pylist() if each["how"] == "chosen"]
    assert read.evidence is not None
    assert [(each.text, each.char_start, each.char_end) for each in read.evidence] == [
        (each["text"], each["char_start"], each["char_end"]) for each in chosen
    ]
    assert chosen
    assert (free.value, free.value_status) == (None, None)
    assert free.evidence == read.evidence


@pytest.mark.parametrize("has_evidence", [True, False])
@pytest.mark.parametrize("text", ["It rained. It is simulated here.", "It rained. Ann signed.", None])
def test_reader_and_run_say_in_the_words_of_pages_why_an_answer_needs_a_look(
    text: str | None, has_evidence: bool, text_model: str, tmp_path: Path
) -> None:
    agent, follow_ups = agent_of(text_model), ma.FollowUpConfig(evidence=has_evidence)
    questions = [ma.Question(question="Who?"), ma.Question(question="How much?", type=ma.Number())]
    how: dict[str, Any] = {"output": tmp_path / "scan", "agent": agent, "follow_ups": follow_ups}
    run = run_local(documents=table_of({"d": text, "other": "It rained."}), questions=questions, **how)
    expected = {row["question_id"]: row["doubt"] for row in run.doubts().to_pylist() if row["document_id"] == "d"}
    ids = dict(run.answers().select(["question", "question_id"]).to_pandas().to_numpy())
    with agent.open(follow_ups=follow_ups) as reader:
        doubts = {each.question: reader.read(text, each.question, type=each.type).doubt for each in questions}
    assert doubts == {question: expected.get(ids[question]) for question in doubts}
    nowhere = "the answer's words are nowhere in the document"
    if text is None:
        assert set(doubts.values()) == {"reading it failed"}
    else:
        assert doubts["Who?"] == (nowhere if has_evidence and "simulated" not in text else None)


@pytest.mark.parametrize(("num_words", "status"), [(400, "not_read"), (20, "not_stated")])
def test_reader_and_run_say_not_stated_only_of_a_text_that_was_shown_whole(
    num_words: int, status: str, text_model: str, tmp_path: Path
) -> None:
    policy = ma.Retrieve(chunk_tokens=200, passage_tokens=40, question_tokens=60, answer_tokens=60)
    agent = ma.Agent(model=text_model, engine=unstating_engine.KIND, window_tokens=2000, policy=policy)
    text, question = "It rained. " * (num_words // 2), ma.Question(question="How much?", type=ma.Number())
    with agent.open() as reader:
        read = reader.read(text, question.question, type=question.type)
    run = run_local(documents=table_of({"d": text}), questions=[question], output=tmp_path / "scan", agent=agent)
    (row,) = run.answers().to_pylist()
    assert (read.value_status, read.value, read.coverage) == (status, None, row["coverage"])
    assert row["value_status"] == status


def test_reader_that_is_not_open_says_so_and_one_that_does_not_fit_does_not_open(text_model: str) -> None:
    with pytest.raises(SettingsError, match="window_tokens"):
        agent_of(text_model).model_copy(update={"window_tokens": 60}).open()
    reader = agent_of(text_model).open()
    with pytest.raises(MemagentError, match=r"agent\.open"):
        reader.read(TEXT, QUESTION)
    with reader:
        pass
    with pytest.raises(MemagentError, match=r"agent\.open"):
        reader.read(TEXT, QUESTION)


@pytest.mark.parametrize(("text", "why"), [(None, "the text is null"), (" \n", "the text is empty")])
def test_text_that_is_null_or_empty_is_a_failed_reading_as_in_tables(
    text_model: str, text: str | None, why: str
) -> None:
    follow_ups = ma.FollowUpConfig(evidence=True)
    with agent_of(text_model).open(follow_ups=follow_ups) as reader:
        reading = reader.read(text, QUESTION)
        with pytest.raises(InputError, match="question: it is empty"):
            reader.read("A text.", " ")
        with pytest.raises(TypeError, match=r"must be a string, not list; ma\.answer"):
            reader.read(["one", "two"], "Who?")  # type: ignore[arg-type]
    assert (reading.status, reading.answer) == (Status.FAILED, None)
    assert isinstance(reading.error, DocumentError)
    assert why in str(reading.error)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ma.Agent(modle="x"), "modle: there is no such setting; did you mean model?"),  # type: ignore[call-arg]
        (lambda: ma.VllmConfig(enforce_eger=True), "enforce_eger: .*; did you mean enforce_eager?"),  # type: ignore[call-arg]
        (lambda: ma.InputConfig(text_colum="body"), "text_colum: .*; did you mean text_column?"),  # type: ignore[call-arg]
        (lambda: ma.PoolConfig(replicas=0), "replicas: 0 is below 1, the least"),
        (lambda: ma.Overwrite(chunk_tokens=0), "chunk_tokens: 0 is below 1, the least"),
        (
            lambda: ma.PolicyConfig(settings={"memory_token": 9}),
            "policy.memory_token: the policy 'overwrite' has no such setting.*; did you mean memory_tokens?",
        ),
    ],
)
def test_mistake_in_an_agent_is_refused_where_it_is_made(make: Callable[[], object], says: str) -> None:
    with pytest.raises(SettingsError, match=f"^{says}"):
        make()


def test_agent_of_checked_parts_is_the_plain_value_that_a_job_file_gives() -> None:
    agent = ma.Agent(model="m", policy=ma.Gated(chunk_tokens=9))
    assert pickle.loads(pickle.dumps(agent)) == agent
    assert agent.model_dump(exclude_unset=True) == {"model": "m", "policy": {"kind": "gated", "chunk_tokens": 9}}


def test_without_vllm_the_default_engine_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)  # as if it were not installed
    (tmp_path / "a.txt").write_text(TEXT)
    agent = ma.Agent(model="tiny", window_tokens=2048)
    with pytest.raises(EngineStartError, match=NO_VLLM):
        agent.open()
    with pytest.raises(EngineStartError, match=NO_VLLM):
        ma.answer(documents=tmp_path / "a.txt", questions=[QUESTION], output=tmp_path / "out", agent=agent)
    assert not (tmp_path / "out").exists()


@pytest.mark.vllm
@pytest.mark.slow
def test_script_without_a_main_guard_reads_with_vllm_and_leaves_no_engine_behind(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"""
import memagent_batch as ma
policy = ma.Overwrite(chunk_tokens=512, overlap_tokens=48, question_tokens=128, memory_tokens=128, answer_tokens=64)
vllm = ma.VllmConfig(enforce_eager=True, cpu_kv_cache_gib=1, dtype="float32")
agent = ma.Agent(model="tiny", window_tokens=1024, policy=policy, vllm=vllm)
with agent.open() as reader:
    print("answer", reader.read({TEXT!r}, {QUESTION!r}).answer)
import psutil
children = [" ".join(each.cmdline()) for each in psutil.Process().children(recursive=True)]
print("engines", [line for line in children if "resource_tracker" not in line])
""")
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert ended.stdout.splitlines() == [f"answer {CODE}", "engines []"], ended.stderr
    assert not ended.stderr  # of vLLM, torch and transformers
