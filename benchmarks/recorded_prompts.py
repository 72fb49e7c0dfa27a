"""The prompts of a finished run, rebuilt: the policy runs again over the same documents, answered from the turn log."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from benchmarks.needle_corpus import chunks_of
from memagent_batch.domain.addresses import text_hash
from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.reading.generation import Recording, Replaying
from memagent_batch.reading.logged_turns import held_turn
from memagent_batch.settings import Settings
from memagent_batch.wiring import make_policy, make_prompt_tokens, make_tokenizer


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


def recorded_turns(settings: Settings) -> list[RecordedTurn]:
    """All turns of a run over one Parquet file with a question for each document, in the order of their start."""
    logged: dict[str, dict[str, Any]] = {}
    for row in pq.read_table(f"{settings.output}/log/turns").to_pylist():
        logged.setdefault(row["document_hash"], {})[row["path"]] = row
    questions = {row["document_id"]: row["question"] for row in pq.read_table(settings.questions).to_pylist()}
    turns = []
    for row in pq.read_table(settings.documents[0]).to_pylist():
        rows = logged[text_hash(row["text"])]
        prompts = asyncio.run(_asked(settings, row["text"], questions[row["document_id"]], rows=rows))
        turns += [_recorded(prompt, rows[prompt.path]) for prompt in prompts]
    if len(turns) != sum(len(rows) for rows in logged.values()):
        raise RuntimeError(f"{len(turns)} turns were rebuilt, the log holds {sum(map(len, logged.values()))}")
    return sorted(turns, key=lambda turn: turn.began_at)


async def _asked(settings: Settings, text: str, question: str, *, rows: Mapping[str, dict[str, Any]]) -> list[Prompt]:
    """Prompts of one reading."""
    prompts: list[Prompt] = []
    generate = Recording(
        generate=Replaying(generate=_refuse, held={path: held_turn(row) for path, row in rows.items()}),
        record=lambda prompt, _: prompts.append(prompt),
    )
    await make_policy(settings).read(
        chunks_of(text, settings),
        make_tokenizer(settings).encode(question),
        prompts=make_prompt_tokens(settings),
        generate=generate,
    )
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


async def _refuse(prompt: Prompt) -> Completion:
    raise RuntimeError(f"the log does not hold turn {prompt.path} of this prompt")
