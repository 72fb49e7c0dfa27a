"""The ledger of a run with bounds: actors draw shares of what is left, and it says when a bound is met.

It has no second life, since what it had given would be forgotten: it stands on the driver's node, and without it the
run stops. What an actor had drawn when it died counts as taken.
"""

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from memagent_batch.domain.bounds import Amounts, Bounds
from memagent_batch.errors import RunFailedError
from memagent_batch.reading.allowance import Allowance, Grant

SHARES = 16
"""A draw takes this part of what is left for each actor: few calls, and little lies idle in an actor at the end."""

LOST = "the ledger of the run's bounds is gone, so that no turn may start; the same command goes on from the log"


class Ledger:
    """A Ray actor; keeps what is left."""

    def __init__(self, bounds: Bounds, *, actors: int, seconds_taken: float) -> None:
        """Nothing was drawn; `seconds_taken` of the time have gone."""
        self._left: Amounts = tuple(meter.most for meter in bounds.meters)
        self._shares = SHARES * actors
        self._deadline = None if bounds.seconds is None else time.monotonic() + bounds.seconds - seconds_taken
        self._struck: str | None = None

    async def draw(self, missing: Amounts) -> Grant:
        """A share of what is left, of each meter at least what is missing, or else all."""
        amounts = tuple(
            min(left, max(wanted, left // self._shares)) for left, wanted in zip(self._left, missing, strict=True)
        )
        self._left = tuple(left - amount for left, amount in zip(self._left, amounts, strict=True))
        seconds_left = None if self._deadline is None else self._deadline - time.monotonic()
        return Grant(amounts=amounts, seconds_left=seconds_left)

    async def put(self, amounts: Amounts) -> None:
        """Takes back what an actor has left of its shares."""
        self._left = tuple(left + amount for left, amount in zip(self._left, amounts, strict=True))

    async def strike(self, knob: str) -> None:
        """An actor could start no further turn; the first reason counts."""
        self._struck = self._struck or knob

    async def struck(self) -> str | None:
        """The knob of the bound that is met; None while turns start."""
        return self._struck


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedRun:
    """What a run's tasks need of its bounds."""

    bounds: Bounds
    """The bounds."""
    ledger: Any
    """Actor handle of the Ledger."""

    def allowance(self) -> Allowance:
        """The share of one actor of readers."""
        ledger = self.ledger
        draw, strike, put = (partial(_asked, method) for method in (ledger.draw, ledger.strike, ledger.put))
        return Allowance(self.bounds, draw=draw, strike=strike, put=put)

    def struck(self) -> str | None:
        """The knob of the bound that is met; None while turns start."""
        try:
            knob: str | None = ray.get(self.ledger.struck.remote())
        except ray.exceptions.RayActorError as error:
            raise RunFailedError(LOST) from error
        return knob

    def open_bundle(self, bundle: pa.Table) -> pa.Table:
        """Ray Data UDF: a bundle as it is, and without its documents once a bound is met: nothing more is fetched."""
        return bundle.slice(0, 0) if self.struck() else bundle


def start_ledger(bounds: Bounds, *, actors: int, seconds_taken: float) -> BoundedRun:
    """A Ledger as an actor that takes no CPU, on the driver's node."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor = ray.remote(num_cpus=0, scheduling_strategy=here)(Ledger)
    ledger = actor.remote(bounds, actors=actors, seconds_taken=seconds_taken)
    return BoundedRun(bounds=bounds, ledger=ledger)


async def _asked(method: Any, argument: Any) -> Any:
    try:
        return await method.remote(argument)
    except ray.exceptions.RayActorError as error:
        raise RunFailedError(LOST) from error
