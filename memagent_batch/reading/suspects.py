"""Turns that were under way when an engine died: found again after the restart, run alone, given up at the third death.

A turn that kills its engine would otherwise be tried again for ever, and take the readings beside it down each time.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.domain.turns import Completion, Generate, Prompt
from memagent_batch.errors import EngineDeadError, EngineRequestError
from memagent_batch.files.location import Location
from memagent_batch.files.parquet import parquet_bytes
from memagent_batch.log.index import ReadingKey, reading_key

DEATHS_FOLDER = "log/deaths"
SUSPECT_DEATHS = 2
"""Deaths after which a turn runs with no other suspect beside it; the first one may be anybody's doing."""
FATAL_DEATHS = 3
"""Deaths after which a turn is given up and its reading fails."""

TurnKey = tuple[ReadingKey, str]
"""A reading and a turn path."""


@dataclass(slots=True, kw_only=True)
class Suspects:
    """Which turns are under way, and which were when an engine of this run died. One for each actor."""

    output: Location
    """The run's location."""
    run_id: str
    """Deaths of other runs do not count: the cluster, the model or the machine may have been mended since."""
    _under_way: set[TurnKey] = field(default_factory=set)
    _deaths: Counter[TurnKey] = field(default_factory=Counter)
    _alone: asyncio.Lock = field(default_factory=asyncio.Lock)
    _at_death: frozenset[TurnKey] | None = None

    def load(self) -> None:
        """Reads the deaths of this run."""
        folder = self.output / DEATHS_FOLDER
        for path in folder.files():
            if path.rsplit("/", 1)[-1].startswith(self.run_id):
                for row in pq.read_table(path, filesystem=folder.fs).to_pylist():
                    self._deaths[((row["document_hash"], row["question_hash"], row["sample"]), row["path"])] += 1

    def save(self, *, writer_id: str) -> None:
        """Keeps the turns that were under way when the engine died."""
        rows = [
            {"document_hash": key[0], "question_hash": key[1], "sample": key[2], "path": path}
            for key, path in sorted(self._at_death or ())
        ]
        if rows:
            name = f"{DEATHS_FOLDER}/{self.run_id}-{writer_id}.parquet"
            (self.output / name).write_bytes(parquet_bytes(pa.Table.from_pylist(rows)))

    def guard(self, generate: Generate, *, address: ReadingAddress) -> Generate:
        """`generate` for one reading, with its turns watched."""
        return _Guarded(generate=generate, suspects=self, key=reading_key(address))

    async def run(self, generate: Generate, prompt: Prompt, *, turn: TurnKey) -> Completion:
        """One watched turn.

        Raises:
            EngineRequestError: the engine died at this turn too often.
        """
        deaths = self._deaths[turn]
        if deaths >= FATAL_DEATHS:
            raise EngineRequestError(
                f"turn {prompt.path}: the engine died {deaths} times while this turn was under way"
            )
        if deaths >= SUSPECT_DEATHS:
            async with self._alone:
                return await self._watched(generate, prompt, turn=turn)
        return await self._watched(generate, prompt, turn=turn)

    async def _watched(self, generate: Generate, prompt: Prompt, *, turn: TurnKey) -> Completion:
        self._under_way.add(turn)
        try:
            completion = await generate(prompt)
        except EngineDeadError:
            if self._at_death is None:  # what asks the dead engine from here on did not kill it
                self._at_death = frozenset(self._under_way)
            raise
        finally:
            self._under_way.discard(turn)
        return completion


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guarded:
    generate: Generate
    suspects: Suspects
    key: ReadingKey

    async def __call__(self, prompt: Prompt) -> Completion:
        return await self.suspects.run(self.generate, prompt, turn=(self.key, prompt.path))
