"""Policy `reread` with the shipped policy in real vLLM: what it writes there is of no use, and the reading holds."""

from dataclasses import asdict
from pathlib import Path

import pytest

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import LogConfig
from memagent_batch.config.policy import PolicyConfig
from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.domain.readings import Question, Status
from memagent_batch.engines.vllm.engine import VllmEngine
from memagent_batch.files.location import Location
from memagent_batch.log.turns import read_turns
from memagent_batch.log.writer import TurnLogWriter
from memagent_batch.plugins import make_policy
from memagent_batch.reading.agent import make_agent
from memagent_batch.reading.read import read
from memagent_batch.reading.suspects import Suspects
from memagent_batch.reading.turns import Journal, ReadingTurns, ReplayOnly
from memagent_batch.tokens.tokenizer import Tokenizer

CODE = "4071936"
TEXT = f"{'It rained. ' * 60}The access code of quiet-harbour is {CODE}. {'It rained. ' * 60}"
QUESTION = Question(question_id="q", text="What is the access code of quiet-harbour?")
ADDRESS = ReadingAddress(document_hash="d", question_hash="q", sample=0, reader_fingerprint="f")
POLICY = PolicyConfig(
    kind="reread", chunk_tokens=200, overlap_tokens=40, question_tokens=60, memory_tokens=60, answer_tokens=60, rounds=2
)


@pytest.mark.vllm
@pytest.mark.asyncio(loop_scope="session")
async def test_shipped_policy_rereads_within_its_bounds_and_the_log_gives_the_same_reading(
    vllm_greedy: VllmEngine, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    config = AgentConfig(model="tiny", policy=POLICY, window_tokens=1024)
    agent, document, output = make_agent(config), tiny_tokenizer.document(TEXT), Location(uri=str(tmp_path))
    log = TurnLogWriter(output, run_id="r", writer_id="w", settings=LogConfig(flush_seconds=0.01))
    journal = Journal(log=log, suspects=Suspects(output=output, run_id="r"))
    turns = ReadingTurns(engine=vllm_greedy, address=ADDRESS, seed=0, journal=journal)
    reading = await read(document, QUESTION, agent=agent, turns=turns)
    await log.close()
    assert (reading.status, reading.error) == (Status.OK, None)
    cost = make_policy(config).cost(agent.prompts, num_tokens=document.num_tokens)
    assert cost.num_chunks + 2 <= turns.counts.num_turns <= cost.num_turns
    files = (output / "log/turns").files()
    held = read_turns(output, files, reader_fingerprint="f", document_hashes=["d"])
    assert "decompose/2" in next(iter(held.values()))
    again = ReadingTurns(engine=ReplayOnly(), address=ADDRESS, seed=0, held=held)
    replayed = await read(document, QUESTION, agent=agent, turns=again)
    assert (replayed.response, replayed.memory) == (reading.response, reading.memory)
    assert asdict(again.counts) == asdict(turns.counts) | {"num_replayed_turns": turns.counts.num_turns}
