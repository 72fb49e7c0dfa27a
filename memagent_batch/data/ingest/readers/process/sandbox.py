"""What keeps a converter in bounds: limits of time, memory and output, and system calls that it may not make. Linux.

A hostile file may take over its converter. The converter then has no network, starts no program, signals no process,
reads neither memory nor environment of another one, and writes nothing outside of its own folder. It runs as the same
user, so it can read files of that user.
"""

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
SECCOMP_MODE_FILTER = 2

MACHINES = {
    "x86_64": (0xC000003E, 302, (41, 42, 59, 322, 101, 310, 311, 425, 62, 200, 234, 129, 297, 424, 438)),
    "aarch64": (0xC00000B7, 261, (198, 203, 221, 281, 117, 270, 271, 425, 129, 130, 131, 138, 240, 424, 438)),
}
"""For each machine its number in the kernel's audit, the number of `prlimit64`, and those of the calls that fail.

They reach the network, start a program, or reach another process: socket, connect, execve, execveat, ptrace,
process_vm_readv, process_vm_writev, io_uring_setup, kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo,
pidfd_send_signal, pidfd_getfd.
"""
FOREIGN_CALLS = 0x40000000
"""Numbers from here on are system calls of x86_64's other interface (x32)."""

LOAD, JUMP_IF_EQUAL, JUMP_IF_FROM, RETURN = 0x20, 0x15, 0x35, 0x06
"""Instructions of the kernel's filters: load a word of the call, compare it, end."""
ALLOW, DENY = 0x7FFF0000, 0x00050000 | errno.EACCES
CALL_NUMBER, CALL_MACHINE, CALL_ARGUMENT = 0, 4, 16

LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
"""Numbers of system calls, the same on all machines."""
LANDLOCK_CREATE_RULESET_VERSION, LANDLOCK_RULE_PATH_BENEATH = 1, 1
LANDLOCK_EXECUTE, LANDLOCK_WRITE_FILE, LANDLOCK_TRUNCATE = 1 << 0, 1 << 1, 1 << 14
LANDLOCK_FILES_AND_FOLDERS = 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8
"""The rights to make and remove files and folders."""
LANDLOCK_RIGHTS = LANDLOCK_EXECUTE | LANDLOCK_WRITE_FILE | sum(1 << bit for bit in range(4, 13))
"""Rights that a converter gives up outside of its folder: to start programs, and to write, make and remove anything."""
LANDLOCK_LATER_RIGHTS = {2: 1 << 13, 3: LANDLOCK_TRUNCATE}
"""The rights to move a file to another folder and to cut one, by the version of Landlock that knows them."""
CAPABILITY_VERSION = 0x20080522


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one file may cost."""

    seconds: float = 60.0
    memory_bytes: int = 2 << 30
    """Address space of its process, bytes."""
    output_bytes: int = 256 << 20
    """Text and attachments that come out of it, bytes."""

    @property
    def memory_text(self) -> str:
        """The memory, for a reason."""
        return f"{self.memory_bytes >> 20:,} MiB (--ingest.memory-mib)"


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def confine(limits: Limits, *, parent: int, folder: Path) -> None:
    """Sets the limits for this process, for good; it ends with its `parent`, and writes only into `folder`.

    Raises:
        OSError: the kernel knows no filters of system calls.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _prctl(libc, PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above
        os._exit(1)
    processor_seconds = int(limits.seconds) + 1
    bounds = {
        resource.RLIMIT_AS: limits.memory_bytes,
        resource.RLIMIT_CPU: processor_seconds,
        resource.RLIMIT_FSIZE: limits.output_bytes,
        resource.RLIMIT_CORE: 0,
    }
    for kind, bound in bounds.items():
        resource.setrlimit(kind, (bound, bound))
    _prctl(libc, PR_SET_NO_NEW_PRIVS, 1)
    _drop_capabilities(libc)
    _enter_landlock(libc, folder)
    _deny_calls(libc)


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Gives up what root may do: reading the memory and environment of processes that have more capabilities."""
    header, nothing = struct.pack("Ii", CAPABILITY_VERSION, 0), bytes(24)
    if libc.capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "capset failed")


def _enter_landlock(libc: ctypes.CDLL, folder: Path) -> None:
    """Enters a Landlock domain: the kernel then hides memory and environment of all processes outside of it, and
    refuses to write anywhere but in the folder.

    Does nothing if the kernel has no Landlock or its container forbids it.
    """
    version = libc.syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), LANDLOCK_CREATE_RULESET_VERSION)
    if version < 1:
        return
    rights = LANDLOCK_RIGHTS | sum(right for since, right in LANDLOCK_LATER_RIGHTS.items() if version >= since)
    rules = libc.syscall(LANDLOCK_CREATE_RULESET, struct.pack("Q", rights), ctypes.c_size_t(8), 0)
    if rules < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset failed")
    in_folder = rights & (LANDLOCK_WRITE_FILE | LANDLOCK_FILES_AND_FOLDERS | LANDLOCK_TRUNCATE)
    for path, allowed in ((folder, in_folder), (Path(os.devnull), LANDLOCK_WRITE_FILE)):
        place = os.open(path, os.O_PATH)
        rule = struct.pack("=Qi", allowed, place)
        if libc.syscall(LANDLOCK_ADD_RULE, rules, LANDLOCK_RULE_PATH_BENEATH, rule, 0) != 0:
            raise OSError(ctypes.get_errno(), f"landlock_add_rule failed for {path}")
        os.close(place)
    if libc.syscall(LANDLOCK_RESTRICT_SELF, rules, 0) != 0:
        raise OSError(ctypes.get_errno(), "landlock_restrict_self failed")
    os.close(rules)


def _deny_calls(libc: ctypes.CDLL) -> None:
    machine = platform.machine()
    if machine not in MACHINES:
        raise OSError(errno.ENOTSUP, f"no filter of system calls is known for {machine}")
    audit, prlimit, numbers = MACHINES[machine]
    checks = [(JUMP_IF_FROM, FOREIGN_CALLS), *[(JUMP_IF_EQUAL, number) for number in numbers]]
    program = [(LOAD, 0, 0, CALL_MACHINE), (JUMP_IF_EQUAL, 0, len(checks) + 5, audit), (LOAD, 0, 0, CALL_NUMBER)]
    program += [(code, len(checks) + 3 - place, 0, value) for place, (code, value) in enumerate(checks)]
    program += [(JUMP_IF_EQUAL, 0, 2, prlimit), (LOAD, 0, 0, CALL_ARGUMENT), (JUMP_IF_EQUAL, 0, 1, 0)]  # its own limits
    program += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, DENY)]
    packed = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    filters = _Program(len(program), packed)
    _prctl(libc, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(filters))


def _prctl(libc: ctypes.CDLL, option: int, value: int, pointer: Any = None) -> None:
    if libc.prctl(option, ctypes.c_ulong(value), pointer, ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")
