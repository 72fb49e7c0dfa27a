"""One life of a Reader whose engine dies at a poisoned prompt: run as a process, as Ray would run it, until it exits 0.

Arguments: run id, poisoned text, settings as JSON.
"""

import asyncio
import json
import sys
from functools import partial
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from memagent_batch.cli.settings import job_of
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig
from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.engines.engine import Engine
from memagent_batch.errors import EngineDeadError
from memagent_batch.files.location import Location
from memagent_batch.inputs.documents import index_shard
from memagent_batch.inputs.questions import read_questions
from memagent_batch.inputs.shards import list_shards
from memagent_batch.log.index import TurnIndex
from memagent_batch.log.question_list import write_asked
from memagent_batch.ray_data import actor
from memagent_batch.ray_data.reader import Reader
from memagent_batch.ray_data.tokenise import tokenise
from memagent_batch.runs.planning.calls import CALL_COLUMN
from memagent_batch.runs.planning.plan import Plan
from memagent_batch.wiring import identify_reader, make_engine, make_output, make_tokenizer
from tests.engine_context import MadeEngine
from tests.ray_data.progress.silent_board import SilentBoard


class FragileEngine(MadeEngine):
    """Passes prompts on until one holds the poison; then it is dead, for all that are under way and all that come."""

    def __init__(self, engine: Engine, *, poison: str) -> None:
        self._engine = engine
        self._poison = poison
        self._death: asyncio.Future[None] | None = None

    async def start(self) -> None:
        self._death = asyncio.get_running_loop().create_future()
        await self._engine.start()

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        assert self._death is not None
        turn = asyncio.ensure_future(self._engine.complete(prompt, seed=seed))
        if self._poison in TOKENIZER.decode(list(prompt.token_ids)) and not self._death.done():
            await asyncio.sleep(0.02)
            self._death.set_result(None)
        either: list[asyncio.Future[Any]] = [turn, self._death]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._death.done():
            raise EngineDeadError("poisoned")
        return await turn

    async def stop(self) -> None:
        await self._engine.stop()


def documents_of(plan: Plan, job: JobConfig) -> list[pa.Table]:
    """The planned documents, tokenised, those of one bundle in one call."""
    bundles = plan.pending(TurnIndex(reader_fingerprint=""), retry_failed=False)
    grouped = [bundle.append_column(CALL_COLUMN, pa.array([0] * bundle.num_rows)) for bundle in bundles]
    return [call for bundle in grouped for call in tokenise(bundle, agent=job.agent, sources=job)]


async def read_all(task: actor.ReaderTask, documents: list[pa.Table]) -> None:
    reader = Reader(task)
    await asyncio.gather(*[reader(document) for document in documents])


def poisoned(agent: AgentConfig, *, poison: str) -> FragileEngine:
    return FragileEngine(make_engine(agent), poison=poison)


if __name__ == "__main__":
    run_id, poison, knobs = sys.argv[1:]
    settings = job_of(**json.loads(knobs))
    TOKENIZER = make_tokenizer(settings.agent)
    shards = list_shards(Location(uri=settings.documents[0]), settings=settings.input)
    index = pa.concat_tables(
        [table for shard in shards for table in index_shard(shard, settings=settings.input, storage_options={})]
    )
    plan = Plan(index, read_questions(None, ask=settings.ask), samples=1)
    write_asked(make_output(settings), plan.asked.hashed, run_id=run_id)
    task = actor.ReaderTask.of_job(
        settings,
        run_id=run_id,
        reader_fingerprint=identify_reader(settings.agent).fingerprint,
        board=SilentBoard(),
    )
    with patch.object(actor, "make_engine", partial(poisoned, poison=poison)):
        asyncio.run(read_all(task, documents_of(plan, settings)))
