"""A chat template that prints the time: resume, follow-ups and other nodes work on a later day."""

import shutil
from pathlib import Path

import pytest

from memagent_batch.config.agent import AgentConfig, PolicyConfig
from memagent_batch.config.job import LogConfig
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.turns import DocumentTurns
from memagent_batch.data.store.turn_log.writer import TurnLogWriter
from memagent_batch.errors import SettingsError
from memagent_batch.loop.addresses import ReadingAddress, text_hash
from memagent_batch.loop.models.shipped import TINY_MODEL
from memagent_batch.loop.tokens.tokenizer import _load_tokenizer
from memagent_batch.run.reading.agent import make_agent
from memagent_batch.run.reading.read import FollowUpsOnly, Reading, ReadingTurns, read
from memagent_batch.run.wiring import (
    identify_reader,
    make_engine,
    make_follow_up_tokens,
    make_prompt_tokens,
    make_tokenizer,
)
from memagent_batch.types import Question, Status

POLICY = PolicyConfig(chunk_tokens=512, memory_tokens=128, answer_tokens=64, question_tokens=128)
TEXT = "The access code of quiet-harbour is 4071936. " * 100
QUESTION = Question(question_id="q", text="What is the code?")
PRINTS_NOW = "Now: {{ strftime_now('%d %b %Y %H:%M:%S.%f') }}\n"
PRINTS_NOW_BY_DEFAULT = "Now: {{ date_string or strftime_now('%d %b %Y %H:%M:%S.%f') }}\n"


def agent_with(folder: Path, system_text: str, **chat_template_kwargs: str) -> AgentConfig:
    """An agent whose chat template begins with a text of its own."""
    model = folder / "model"
    shutil.copytree(TINY_MODEL, model, ignore=shutil.ignore_patterns("*.safetensors"), dirs_exist_ok=True)
    template = (TINY_MODEL / "chat_template.jinja").read_text(encoding="utf-8")
    (model / "chat_template.jinja").write_text(system_text + template, encoding="utf-8")
    return AgentConfig(
        model=str(model),
        engine="simulated",
        window_tokens=4096,
        policy=POLICY,
        chat_template_kwargs=dict(chat_template_kwargs),
    )


async def read_later(agent: AgentConfig, output: Location, *, run_id: str, asks_turns: bool = True) -> Reading:
    """Reads in what stands for a new process on another day: its clock differs in microseconds at least."""
    _load_tokenizer.cache_clear()
    address = ReadingAddress(
        document_hash=text_hash(TEXT),
        question_hash=text_hash(QUESTION.text),
        sample=0,
        fingerprint=identify_reader(agent).fingerprint,
    )
    logged = DocumentTurns(
        output,
        (output / "log/turns").files(),
        fingerprints=[address.fingerprint],
        document_hash=address.document_hash,
    )
    log = TurnLogWriter(output, run_id=run_id, writer_id="w", settings=LogConfig())
    engine = make_engine(agent)
    turns = ReadingTurns(
        engine=engine if asks_turns else FollowUpsOnly(engine),
        address=address,
        seed=0,
        from_log=logged.of_reading(address.question_hash, address.sample),
        log=log,
    )
    document = make_tokenizer(agent).document(TEXT)
    reading = await read(document, QUESTION, agent=make_agent(agent), turns=turns)
    await log.flush()
    return reading


async def test_reading_with_a_template_that_prints_the_time_is_replayed_and_followed_up_on_a_later_day(
    tmp_path: Path,
) -> None:
    agent, output = agent_with(tmp_path, PRINTS_NOW), Location(uri=str(tmp_path / "out"))
    first = await read_later(agent, output, run_id="20260131T235959.123Z.07af")
    assert (first.status, first.counts.num_replayed_turns) == (Status.OK, 0)
    resumed = await read_later(agent, output, run_id="20260201T235959.123Z.07af")
    assert resumed.counts.num_replayed_turns == resumed.counts.num_turns == first.counts.num_turns
    followed_up = await read_later(agent, output, run_id="20260202T235959.123Z.07af", asks_turns=False)
    assert (followed_up.status, followed_up.error_type) == (Status.OK, None)


def test_prompts_of_a_template_that_prints_the_time_are_the_same_on_every_node(tmp_path: Path) -> None:
    agent, made = agent_with(tmp_path, PRINTS_NOW), []
    for _ in range(2):
        _load_tokenizer.cache_clear()
        prompts, templates = make_prompt_tokens(agent), make_follow_up_tokens(agent).templates
        made.append((prompts.update, prompts.answer, prompts.direct, templates, identify_reader(agent).fingerprint))
    assert made[0] == made[1]
    fixed = made[0][0].pieces[0]
    assert not isinstance(fixed, str)
    assert "Now: 26 Jul 2024 00:00:00.000000" in make_tokenizer(agent).text_of(fixed)


def test_identity_names_the_time_only_where_prompts_show_it(tmp_path: Path) -> None:
    assert identify_reader(agent_with(tmp_path, PRINTS_NOW)).parts["template_time"] == "2024-07-26T00:00:00"
    _load_tokenizer.cache_clear()
    assert "template_time" not in identify_reader(agent_with(tmp_path, "No clock.\n")).parts
    _load_tokenizer.cache_clear()
    own_date = agent_with(tmp_path, PRINTS_NOW_BY_DEFAULT, date_string="1 May 2026")
    assert "template_time" not in identify_reader(own_date).parts
    _load_tokenizer.cache_clear()


def test_clock_of_a_template_can_not_be_set_as_a_word(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"chat_template_kwargs: .* takes no 'strftime_now'"):
        make_prompt_tokens(agent_with(tmp_path, PRINTS_NOW, strftime_now="today"))
