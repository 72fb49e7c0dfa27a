"""A command of the product in its own process, given again where Ray could not be started.

Nothing of the product is imported here, so that recorded jobs run at any commit.
"""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

START_TRIES = 3
NOT_STARTED = "Ray can't be started"
"""What a command says where Ray gave up after 30 s, as on a machine with much else to do; nothing was written then."""


def run_job(
    command: Sequence[str | Path], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """How the command ended, and what it wrote; of its last try."""
    for _ in range(START_TRIES):
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
        if done.returncode == 0 or NOT_STARTED not in done.stderr:
            break
    return done
