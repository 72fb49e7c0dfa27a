"""Rewards of samples from their last response: what Multi-Conv DAPO learns from.

A user's own function runs in its own process, so that it can neither hang nor end a run.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

from memagent_batch.apps.training import reward_server
from memagent_batch.apps.training.reward_server import Reply
from memagent_batch.config.agent import Extraction
from memagent_batch.config.job import RolloutConfig
from memagent_batch.errors import SettingsError
from memagent_batch.logs import STDERR_NUMBER
from memagent_batch.loop.completions import closed_text, extract_answer
from memagent_batch.loop.scores import Metric, score
from memagent_batch.plugins import BOXED, BOXED_NORMALISED, REWARDS

IMPORT_SECONDS = 120.0
"""Time in which the process of a user's function must have started and imported it."""
Reward = Callable[[str, Sequence[str]], float]
"""From the whole response of the answer turn and the references to a number. A user's own has this signature."""

BOXED_WITHIN = 300
"""Characters at the end of a response in which `boxed` looks for the box."""

_BOX_WITH_SPACE, _BOX_WITH_BRACE = "\\boxed ", "\\boxed{"

_LATEX_RULES = (
    ("\n", ""),
    ("\\!", ""),
    ("\\\\", "\\"),
    ("tfrac", "frac"),
    ("dfrac", "frac"),
    ("\\left", ""),
    ("\\right", ""),
    ("^{\\circ}", ""),
    ("^\\circ", ""),
    ("\\$", ""),
    ("\\%", ""),
    (" .", " 0."),
    ("{.", "{0."),
    (" ", ""),
)
"""Replacements that `boxed` makes before it compares, in this order: line feeds and thin spaces, doubled backslashes,
forms of fractions, sizes of brackets, degrees, escaped dollar and per cent signs, decimals without a 0, spaces."""


def built_in_reward(name: str, *, extraction: Extraction) -> Reward:
    """The reward of this name, for answers that are taken out of responses in this way.

    Raises:
        ValueError: there is none of this name.
    """
    if name not in REWARDS.built_in:
        raise ValueError(f"{name!r} is not a built-in reward")
    if name == BOXED:
        return boxed_reward
    metric = Metric.EM if name == BOXED_NORMALISED else Metric(name)
    form = Extraction.BOXED if name == BOXED_NORMALISED else extraction

    def reward(response: str, references: Sequence[str]) -> float:
        return score(metric, extract_answer(response, extraction=form), references)

    return reward


def boxed_reward(response: str, references: Sequence[str]) -> float:
    """The reward `boxed`: 1.0 or 0.0."""
    boxed = _boxed_text(response[-BOXED_WITHIN:].lower())
    if boxed is None:
        return 0.0
    return float(any(_without_latex(boxed) == _without_latex(reference.lower()) for reference in references))


def _boxed_text(ending: str) -> str | None:
    r"""The text of the last box; None where it does not close. `\boxed x$` counts as a box up to the dollar sign."""
    if _BOX_WITH_SPACE in ending:
        return ending.rpartition(_BOX_WITH_SPACE)[2].partition("$")[0]
    start = ending.rfind("\\boxed")
    if start < 0 or not ending.startswith(_BOX_WITH_BRACE, start):
        return None
    return closed_text(ending, start + len(_BOX_WITH_BRACE))


def _without_latex(text: str) -> str:
    for written, replacement in _LATEX_RULES:
        text = text.replace(written, replacement)
    return text


class Rewarder:
    """Rewards responses by the settings."""

    def __init__(self, settings: RolloutConfig, *, extraction: Extraction) -> None:
        self._settings = settings
        self._built_in = None
        if settings.reward in REWARDS.built_in:
            self._built_in = built_in_reward(settings.reward, extraction=extraction)
        self._process: RewardProcess | None = None
        self._was_imported = False

    def __call__(self, response: str, references: Sequence[str] | None) -> Reply:
        """The reward of a response. What concerns one sample alone is never raised."""
        if references is None:
            return Reply(error="the question has no references")
        if self._built_in is not None:
            return Reply(reward=self._built_in(response, references))
        try:
            if self._process is None or self._process.has_ended():  # after its end the next sample gets a new one
                self.close()
                self._process = RewardProcess(REWARDS.path(self._settings.reward))
                self._was_imported = True
            asked = {"response": response, "references": list(references)}
            return self._process.ask(asked, seconds=self._settings.reward_timeout_seconds)
        except SettingsError as error:
            if not self._was_imported:
                raise
            return Reply(error=str(error))

    def close(self) -> None:
        """Ends the process, if there is one, also where it hangs."""
        if self._process is not None:
            self._process.close()
            self._process = None


class RewardProcess:
    """The process in which a user's function runs, and the only one that imports it."""

    def __init__(self, path: str, *, import_seconds: float = IMPORT_SECONDS) -> None:
        """Starts it and waits until the function, at `package.module:function`, is imported.

        Raises:
            SettingsError: the function can't be imported, whatever its module does instead; says what.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            self._connection = Connection(ours.detach())
            self._process = subprocess.Popen(
                [sys.executable, "-P", reward_server.__file__, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=STDERR_NUMBER,  # the function's own output: stdout belongs to the command
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        first = {"reward": path, "sys_path": sys.path}
        try:
            failure = self.ask(first, seconds=import_seconds).get("error")
        except BaseException:
            self.close()
            raise
        if failure is not None:
            self.close()
            raise SettingsError(
                f"rollouts.reward: {path!r} can't be imported: {failure}. Fix the module; where it is not found, put "
                "its folder on PYTHONPATH, on every node"
            )

    def ask(self, message: Mapping[str, object], *, seconds: float) -> Reply:
        """What comes of a message. If the process died or took longer, the reply says so, and it has ended."""
        try:
            self._connection.send_bytes(json.dumps(message).encode())
            if self._connection.poll(seconds):
                reply: Reply = json.loads(self._connection.recv_bytes())
                return reply
            failure = f"took longer than {seconds:g} s"
        except (EOFError, ConnectionError):
            failure = "its process died"
        self.close()
        return Reply(error=failure)

    def has_ended(self) -> bool:
        """Whether the process is known to have ended."""
        return self._connection.closed or self._connection.poll(0)

    def close(self) -> None:
        """Ends the process and all that it started in its group."""
        if self._connection.closed:  # its id may be another process's by now
            return
        with suppress(ProcessLookupError):  # all of them have ended already
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._connection.close()


def require_reward(settings: RolloutConfig, *, import_seconds: float = IMPORT_SECONDS) -> None:
    """Refuses a reward of the user's that can't be imported; it is tried in its own process.

    Raises:
        SettingsError: names it.
    """
    if settings.reward not in REWARDS.built_in:
        RewardProcess(REWARDS.path(settings.reward), import_seconds=import_seconds).close()
