"""The prompts of a finished run, rebuilt: the policy runs again over the same documents, answered from the turn log."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from benchmarks.needle_corpus import document_of
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig
from memagent_batch.domain.addresses import ReadingAddress, text_hash
from memagent_batch.domain.readings import Question
from memagent_batch.domain.turns import Prompt
from memagent_batch.log.index import reading_key
from memagent_batch.log.rows import TurnRow
from memagent_batch.log.turns import LoggedRows
from memagent_batch.reading.agent import make_agent
from memagent_batch.reading.read import read
from memagent_batch.reading.turns import ReadingTurns, ReplayOnly


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """A turn of the run."""

    prompt: Prompt
    """Its prompt."""
    completion_token_ids: list[int]
    """What came back."""
    num_cached_tokens: int
    """Prompt tokens that the prefix cache held."""
    began_at: float
    """When the engine got it, seconds since 1970."""
    ended_at: float
    """When it was answered, seconds since 1970."""


def recorded_turns(job: JobConfig) -> list[RecordedTurn]:
    """All turns of a run over one Parquet file with a question for each document, in the order of their start."""
    logged: dict[str, dict[str, TurnRow]] = {}
    for row in pq.read_table(f"{job.output}/log/turns").to_pylist():
        logged.setdefault(row["document_hash"], {})[row["path"]] = row
    questions = {row["document_id"]: row["question"] for row in pq.read_table(job.questions).to_pylist()}
    turns = []
    for row in pq.read_table(job.documents[0]).to_pylist():
        rows = logged[text_hash(row["text"])]
        prompts = asyncio.run(_asked(job.agent, row["text"], questions[row["document_id"]], rows=rows))
        turns += [_recorded(prompt, rows[prompt.path]) for prompt in prompts]
    if len(turns) != sum(len(rows) for rows in logged.values()):
        raise RuntimeError(f"{len(turns)} turns were rebuilt, the log holds {sum(map(len, logged.values()))}")
    return sorted(turns, key=lambda turn: turn.began_at)


async def _asked(agent: AgentConfig, text: str, question: str, *, rows: Mapping[str, TurnRow]) -> list[Prompt]:
    """Prompts of one reading."""
    prompts: list[Prompt] = []
    address = ReadingAddress(document_hash="", question_hash="", sample=0, reader_fingerprint="")
    turns = ReadingTurns(
        engine=ReplayOnly(),
        address=address,
        seed=0,
        held={reading_key(address): LoggedRows.of_rows(rows)},
        observe=lambda prompt, _: prompts.append(prompt),
    )
    asked = Question(question_id="", text=question)
    await read(document_of(text, agent), asked, agent=make_agent(agent), turns=turns)
    return prompts


def _recorded(prompt: Prompt, row: Mapping[str, Any]) -> RecordedTurn:
    ended_at = row["finished_at"].timestamp()
    return RecordedTurn(
        prompt=prompt,
        completion_token_ids=row["token_ids"],
        num_cached_tokens=row["num_cached_prompt_tokens"],
        began_at=ended_at - row["engine_seconds"],
        ended_at=ended_at,
    )
