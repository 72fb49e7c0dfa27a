"""What keeps a converter in bounds: limits of time, memory and output, and system calls that it may not make. Linux.

A converter of hostile files may be taken over by one. It then has no network, starts no program, and sees no secret
in its environment; it runs as the same user, so files of that user can be read.
"""

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
from dataclasses import dataclass
from typing import Any

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
SECCOMP_MODE_FILTER = 2

DENIED = (
    "socket",
    "connect",
    "execve",
    "execveat",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "io_uring_setup",
)
"""System calls that fail: those that reach the network, start a program or look into another process."""
MACHINES = {
    "x86_64": (0xC000003E, (41, 42, 59, 322, 101, 310, 311, 425)),
    "aarch64": (0xC00000B7, (198, 203, 221, 281, 117, 270, 271, 425)),
}
"""For each machine its number in the kernel's audit, and the numbers of `DENIED` on it."""
FOREIGN_CALLS = 0x40000000
"""Numbers from here on are system calls of x86_64's other interface (x32)."""

LOAD, JUMP_IF_EQUAL, JUMP_IF_FROM, RETURN = 0x20, 0x15, 0x35, 0x06
"""Instructions of the kernel's filters: load a word of the call, compare it, end."""
ALLOW, DENY = 0x7FFF0000, 0x00050000 | errno.EACCES
CALL_NUMBER, CALL_MACHINE = 0, 4
"""Places in the description of a call, bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one file may cost."""

    seconds: float = 60.0
    """Time of its process, seconds."""
    memory_bytes: int = 1 << 30
    """Address space of its process, bytes."""
    output_bytes: int = 256 << 20
    """Text and attachments that come out of it, bytes."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def confine(limits: Limits) -> None:
    """Sets the limits for this process, for good.

    Raises:
        OSError: the kernel knows no filters of system calls.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _prctl(libc, PR_SET_PDEATHSIG, signal.SIGKILL)
    processor_seconds = int(limits.seconds) + 1
    bounds = {
        resource.RLIMIT_AS: limits.memory_bytes,
        resource.RLIMIT_CPU: processor_seconds,
        resource.RLIMIT_FSIZE: limits.output_bytes,
        resource.RLIMIT_CORE: 0,
    }
    for kind, bound in bounds.items():
        resource.setrlimit(kind, (bound, bound))
    _deny_calls(libc)


def _deny_calls(libc: ctypes.CDLL) -> None:
    machine = platform.machine()
    if machine not in MACHINES:
        raise OSError(errno.ENOTSUP, f"no filter of system calls is known for {machine}")
    audit, numbers = MACHINES[machine]
    checks = [(JUMP_IF_FROM, FOREIGN_CALLS), *[(JUMP_IF_EQUAL, number) for number in numbers]]
    program = [(LOAD, 0, 0, CALL_MACHINE), (JUMP_IF_EQUAL, 0, len(checks) + 2, audit), (LOAD, 0, 0, CALL_NUMBER)]
    program += [(code, len(checks) - place, 0, value) for place, (code, value) in enumerate(checks)]
    program += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, DENY)]
    packed = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    _prctl(libc, PR_SET_NO_NEW_PRIVS, 1)
    filters = _Program(len(program), packed)
    _prctl(libc, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(filters))


def _prctl(libc: ctypes.CDLL, option: int, value: int, pointer: Any = None) -> None:
    if libc.prctl(option, ctypes.c_ulong(value), pointer, ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")
