"""Turns that were in flight when an engine died: remembered after the restart, and given up at the fourth death.

Without that, a turn that kills its engine would be retried forever, and stop the readings beside it each time. Turns
that were there at two deaths are suspects. They run in groups of 16, then those of the group that died run alone: of
256 suspects the one that kills is found by two more deaths, and without one they have run after 16 times one turn.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.errors import EngineDeadError, EngineRequestError
from memagent_batch.store.location import Location
from memagent_batch.store.parquet import parquet_bytes
from memagent_batch.store.turn_log.index import ReadingKey, reading_key

DEATHS_FOLDER = "log/deaths"
SUSPECT_DEATHS = 2
"""Deaths after which a turn is a suspect; any turn beside it may have caused the first."""
SUSPECTS_TOGETHER = 16
"""Suspects that run at once: the square root of the turns in flight by default, so that groups and members are few."""
ALONE_DEATHS = 3
"""Deaths after which a suspect runs with no other suspect beside it."""
FATAL_DEATHS = 4
"""Deaths after which a turn is given up and its reading fails."""

TurnKey = tuple[ReadingKey, str, str]
"""A reading, the fingerprint of what answers its turn, and the turn's path."""


@dataclass(slots=True, kw_only=True)
class Suspects:
    """Which turns are in flight, and which were when an engine of this run died. One for each actor."""

    output: Location | None
    """The run's location; None where no file is kept, and the actor hands deaths on (`at_death`, `add`)."""
    run_id: str
    """Deaths in other runs do not count: the cluster, the model or the machine may have been repaired since."""
    _under_way: set[TurnKey] = field(default_factory=set)
    _deaths: Counter[TurnKey] = field(default_factory=Counter)
    _next: asyncio.Lock = field(default_factory=asyncio.Lock)
    _permits: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SUSPECTS_TOGETHER))
    _at_death: frozenset[TurnKey] | None = None

    def load(self) -> None:
        """Reads the deaths of this run."""
        if self.output is None:
            return
        folder = self.output / DEATHS_FOLDER
        for path in folder.files():
            if path.rsplit("/", 1)[-1].startswith(self.run_id):
                rows = pq.read_table(path, filesystem=folder.fs).to_pylist()
                self.add(map(_turn_of, rows))

    def add(self, turns: Iterable[TurnKey]) -> None:
        """Counts a death of each of these turns."""
        self._deaths.update(turns)

    @property
    def at_death(self) -> list[TurnKey]:
        """The turns that were in flight when the engine died."""
        return sorted(self._at_death or ())

    def save(self, *, writer_id: str) -> None:
        """Keeps the turns that were in flight when the engine died."""
        rows = [
            {
                "document_hash": key[0],
                "question_hash": key[1],
                "sample": key[2],
                "fingerprint": fingerprint,
                "path": path,
            }
            for key, fingerprint, path in self.at_death
        ]
        if rows and self.output is not None:
            name = f"{DEATHS_FOLDER}/{self.run_id}-{writer_id}.parquet"
            (self.output / name).write_bytes(parquet_bytes(pa.Table.from_pylist(rows)))

    @asynccontextmanager
    async def admit(self, address: ReadingAddress, path: str) -> AsyncIterator[None]:
        """Lets a turn into the block. A suspect waits until few enough other suspects, or none, are in theirs.

        Raises:
            EngineRequestError: the engine died at this turn too often.
        """
        deaths = self._deaths[_turn(address, path)]
        if deaths >= FATAL_DEATHS:
            raise EngineRequestError(f"turn {path}: the engine died {deaths} times while this turn was in flight")
        async with AsyncExitStack() as permits:
            if deaths >= SUSPECT_DEATHS:
                async with self._next:  # one that needs all permits is not overtaken by those that need one
                    for _ in range(SUSPECTS_TOGETHER if deaths >= ALONE_DEATHS else 1):
                        await permits.enter_async_context(self._permits)
            yield

    @contextmanager
    def watch(self, address: ReadingAddress, path: str) -> Iterator[None]:
        """Keeps the turn noted as in flight inside the block."""
        turn = _turn(address, path)
        self._under_way.add(turn)
        try:
            yield
        except EngineDeadError:
            if self._at_death is None:  # turns that ask the dead engine later did not kill it
                self._at_death = frozenset(self._under_way)
            raise
        finally:
            self._under_way.discard(turn)


def _turn(address: ReadingAddress, path: str) -> TurnKey:
    return (reading_key(address), address.fingerprint, path)


def _turn_of(row: Mapping[str, Any]) -> TurnKey:
    """The turn of a row of a death; one without a fingerprint is not a turn of any reader."""
    key = (row["document_hash"], row["question_hash"], row["sample"])
    return key, row.get("fingerprint", ""), row["path"]
