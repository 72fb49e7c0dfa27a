"""Rewards of samples. A user's own function runs in its own process, so that it can neither hang nor end a run."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

from memagent_batch.apps.training.rollouts import reward_server
from memagent_batch.apps.training.rollouts.reward_server import Reply
from memagent_batch.apps.training.rollouts.rewards import built_in_reward
from memagent_batch.config.agent import Extraction
from memagent_batch.config.job import RolloutConfig
from memagent_batch.errors import SettingsError
from memagent_batch.logs import STDERR_NUMBER
from memagent_batch.plugins import REWARDS

IMPORT_SECONDS = 120.0
"""Time in which the process of a user's function must have started and imported it."""


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
        return self._foreign(response, list(references))

    def close(self) -> None:
        """Ends the process, if there is one, also where it hangs."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def _foreign(self, response: str, references: list[str]) -> Reply:
        """Asks the user's function in its process; after the end of the process, the next sample gets a new one."""
        try:
            if self._process is None or self._process.has_ended():
                self.close()
                self._process = RewardProcess(REWARDS.path(self._settings.reward))
                self._was_imported = True
            asked = {"response": response, "references": references}
            return self._process.ask(asked, seconds=self._settings.reward_timeout_seconds)
        except SettingsError as error:
            if not self._was_imported:
                raise
            return Reply(error=str(error))


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
