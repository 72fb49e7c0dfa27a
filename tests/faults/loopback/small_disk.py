"""A disk that is soon full."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MOUNT = 'mount -t tmpfs -o "size=$1" tmpfs "$2" && echo ready && exec cat'
"""Ends when its input does, and with it the disk."""


@contextmanager
def small_disk(folder: Path, *, size: str = "1m") -> Iterator[Path]:
    """A disk of that size in memory, as `mount` writes sizes, while the block lasts. Any user may make one.

    It is mounted in the namespace of its own process, and reached by that process's root under /proc.
    """
    folder.mkdir(exist_ok=True)
    with subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh", size, str(folder.resolve())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != "ready\n":
            raise RuntimeError(
                f"no disk can be mounted: {holder.stderr.read().strip()}; allow user namespaces "
                "(sysctl user.max_user_namespaces; in a container --security-opt seccomp=unconfined)"
            )
        try:
            yield Path(f"/proc/{holder.pid}/root{folder.resolve()}")
        finally:
            holder.kill()
