"""Rewards of samples. A user's own function runs in a process of its own, so that it can neither hang nor end a run."""

import importlib
import math
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from memagent_batch.domain.answers import Extraction
from memagent_batch.domain.rewards import BUILT_IN_REWARDS, Reward, built_in_reward
from memagent_batch.errors import SettingsError
from memagent_batch.sections import RolloutSettings

IMPORT_SECONDS = 120.0
"""Time in which the process of a user's function must have started and imported it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewarded:
    """What came of rewarding one sample."""

    reward: float | None = None
    """The reward; None where there is none."""
    error: str | None = None
    """Why there is none."""


class Rewarder:
    """Rewards responses by the knobs."""

    def __init__(self, settings: RolloutSettings, *, extraction: Extraction) -> None:
        """Takes the knobs; a function of the user's is imported when it is first asked."""
        self._settings = settings
        self._built_in = None
        if settings.reward in BUILT_IN_REWARDS:
            self._built_in = built_in_reward(settings.reward, extraction=extraction)
        self._pool: ProcessPoolExecutor | None = None

    def __call__(self, response: str, references: Sequence[str] | None) -> Rewarded:
        """The reward of a response. Never raises for what concerns the sample alone."""
        if references is None:
            return Rewarded(error="the question has no references")
        if self._built_in is not None:
            return Rewarded(reward=self._built_in(response, references))
        return self._foreign(response, list(references))

    def close(self) -> None:
        """Ends the process, if there is one, also where it hangs."""
        if self._pool is None:
            return
        for process in list((self._pool._processes or {}).values()):
            process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = None

    def _foreign(self, response: str, references: list[str]) -> Rewarded:
        """Asks the user's function in its process; after a failure of the process, the next sample gets a new one."""
        limit = IMPORT_SECONDS
        asked: Future[Any] | None = None
        try:
            if self._pool is None:
                self._pool = ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn"))
                asked = self._pool.submit(_warm_up, self._settings.reward)
                asked.result(timeout=limit)
            limit = self._settings.reward_timeout_seconds
            asked = self._pool.submit(call_reward, self._settings.reward, response, references)
            return Rewarded(reward=asked.result(timeout=limit))
        except BrokenProcessPool:
            self.close()
            return Rewarded(error="its process died")
        except Exception as error:  # noqa: BLE001 - the boundary to the user's own code; the row says what it raised
            if isinstance(error, TimeoutError) and asked is not None and not asked.done():
                self.close()
                return Rewarded(error=f"took longer than {limit:g} s")
            return Rewarded(error=f"{type(error).__name__}: {error}")


def import_reward(path: str) -> Reward:
    """The function that `package.module:function` names.

    Raises:
        SettingsError: there is no such module or function; names it.
    """
    module, _, name = path.partition(":")
    try:
        reward: Reward = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise SettingsError(
            f"rollouts.reward: {path!r} can't be imported ({error}); it must be importable on every node"
        ) from error
    if not callable(reward):
        raise SettingsError(f"rollouts.reward: {path!r} is no function")
    return reward


def _warm_up(path: str) -> None:
    """Imports the function, so that the limit of a sample counts its own time alone."""
    import_reward(path)


def call_reward(path: str, response: str, references: list[str]) -> float:
    """The reward that a user's function gives; runs in the process that is meant for it.

    Raises:
        TypeError: it gave something that is no number.
        ValueError: it gave no finite number.
        RuntimeError: it asked the process to end.
    """
    try:
        given = import_reward(path)(response, references)
    except SystemExit as error:  # which would end the process that asked, too
        raise RuntimeError(f"it calls exit({error.code})") from error
    if isinstance(given, str | bytes) or not hasattr(given, "__float__"):
        raise TypeError(f"the reward must be a number, not {type(given).__name__}")
    if not math.isfinite(float(given)):
        raise ValueError(f"the reward must be finite, not {given}")
    return float(given)
