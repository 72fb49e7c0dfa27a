"""What the turns of one actor may still take of the bounds of a run.

A turn reserves the most that it can take before it starts, and gives back what it left when it ends, so that the bound
is never passed. The actor draws its allowance from the run's ledger in shares, ahead of need: turns don't wait for it.
A turn that does not fit waits for those under way, which give back, and is refused when none is left.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from memagent_batch.domain.bounds import Amounts, Bounds
from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.engines.engine import Completer
from memagent_batch.errors import BoundReachedError, EngineRequestError, PromptTooLongError

SEEN_TURNS = 256
"""Latest turns by whose longest the end of the next one is foreseen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A share of the bounds."""

    amounts: Amounts
    """What may be taken."""
    seconds_left: float | None
    """Time that the run has left; None for no bound."""


class Allowance:
    """The share of one actor. Lives on its event loop."""

    def __init__(
        self,
        bounds: Bounds,
        *,
        draw: Callable[[Amounts], Awaitable[Grant]],
        strike: Callable[[str], Awaitable[None]],
        put: Callable[[Amounts], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """An allowance without a share.

        Args:
            bounds: The bounds of the run.
            draw: Gives a share of at least so much, if there is as much.
            strike: Takes the knob of a bound that is met.
            put: Takes back what is left of shares.
            clock: Tells the time in seconds.
        """
        self._bounds, self._draw, self._strike, self._put, self._clock = bounds, draw, strike, put, clock
        self._left: Amounts = tuple(0 for _ in bounds.meters)
        self._low = self._left
        self._deadline: float | None = None
        self._drawing: asyncio.Task[Grant] | None = None
        self._is_joined = self._is_dry = False
        self._struck: str | None = None
        self._in_flight = 0
        self._ended = asyncio.Event()
        self._seconds = deque[float](maxlen=SEEN_TURNS)

    async def reserve(self, prompt: Prompt) -> Amounts:
        """Takes the most that a turn may need; waits where others under way may give some back.

        Raises:
            BoundReachedError: a bound is met, and no turn of the actor is under way.
        """
        need = self._bounds.amounts(prompt_tokens=len(prompt.token_ids), completion_tokens=prompt.max_tokens)
        while not self._takes(need):
            lacking = self._bounds.lacking(need, self._left)
            if not self._is_joined or (lacking and not self._is_dry):
                await self._draw_share(need)
            elif self._in_flight:
                await self._ended.wait()
            else:
                self._struck = self._bounds.seconds_knob if self._is_late() else lacking
                await self._strike(str(self._struck))
        self._draw_ahead()
        return need

    def settle(self, reserved: Amounts, *, prompt_tokens: int, completion_tokens: int, seconds: float) -> None:
        """Ends a turn that took so much; what it left of its reservation goes back."""
        taken = self._bounds.amounts(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)
        self._left = _plus(self._left, _minus(reserved, taken))
        self._seconds.append(seconds)
        self.end()

    def end(self) -> None:
        """Ends a turn of which nobody knows what it took: its reservation counts as taken."""
        self._in_flight -= 1
        self._ended.set()
        self._ended = asyncio.Event()

    async def give_back(self) -> None:
        """Gives what is left back where no turn is under way: this actor may have read its last document."""
        if self._drawing is not None:
            await asyncio.shield(self._drawing)
        if self._in_flight or not any(self._left):
            return
        left, none = self._left, tuple(0 for _ in self._left)
        self._left, self._low, self._is_dry = none, none, False
        await self._put(left)

    def _takes(self, need: Amounts) -> bool:
        """Takes so much, if it is there and time is left; returns whether it did."""
        if self._struck is not None:
            raise BoundReachedError(f"the run has met its bound {self._struck}; the same command goes on")
        if not self._is_joined or self._bounds.lacking(need, self._left) or self._is_late():
            return False
        self._left = _minus(self._left, need)
        self._in_flight += 1
        return True

    def _is_late(self) -> bool:
        """Whether a turn as long as the longest of the latest would end after the time."""
        return self._deadline is not None and self._clock() + max(self._seconds, default=0.0) >= self._deadline

    async def _draw_share(self, need: Amounts) -> None:
        """Draws what is missing at least; one draw at a time."""
        if self._drawing is None:
            missing = tuple(max(0, needed - has) for needed, has in zip(need, self._left, strict=True))
            self._drawing = asyncio.ensure_future(self._drawn(missing))
        await asyncio.shield(self._drawing)

    def _draw_ahead(self) -> None:
        is_low = any(has < low for has, low in zip(self._left, self._low, strict=True))
        if is_low and not self._is_dry and self._drawing is None:
            none = tuple(0 for _ in self._left)
            self._drawing = asyncio.ensure_future(self._drawn(none))

    async def _drawn(self, missing: Amounts) -> Grant:
        try:
            grant = await self._draw(missing)
        finally:
            self._drawing = None
        self._is_joined = True
        self._left = _plus(self._left, grant.amounts)
        self._low = tuple(amount // 2 for amount in grant.amounts)
        self._is_dry = any(amount < needed for amount, needed in zip(grant.amounts, missing, strict=True))
        self._deadline = None if grant.seconds_left is None else self._clock() + grant.seconds_left
        return grant


class BoundedEngine:
    """An engine whose turns keep to an allowance."""

    def __init__(self, engine: Completer, allowance: Allowance) -> None:
        """Takes the engine, which is started."""
        self._engine = engine
        self._allowance = allowance

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """The engine's completion.

        Raises:
            BoundReachedError: the run may start no further turn.
            MemagentError: what the engine raises.
        """
        reserved = await self._allowance.reserve(prompt)
        settle, began = self._allowance.end, time.monotonic()
        try:
            completion = await self._engine.complete(prompt, seed=seed)
            settle = partial(
                self._allowance.settle,
                reserved,
                prompt_tokens=completion.num_prompt_tokens,
                completion_tokens=completion.num_completion_tokens,
                seconds=time.monotonic() - began,
            )
        except (PromptTooLongError, EngineRequestError) as error:
            if isinstance(error, PromptTooLongError) or error.is_turned_away:  # nothing was generated
                settle = partial(self._allowance.settle, reserved, prompt_tokens=0, completion_tokens=0, seconds=0.0)
            raise
        finally:
            settle()
        return completion


def _plus(amounts: Amounts, others: Amounts) -> Amounts:
    return tuple(amount + other for amount, other in zip(amounts, others, strict=True))


def _minus(amounts: Amounts, others: Amounts) -> Amounts:
    return tuple(amount - other for amount, other in zip(amounts, others, strict=True))
