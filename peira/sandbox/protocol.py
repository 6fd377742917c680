"""What a sandbox is, what it limits, and what it tells of a run."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from peira.sandbox.session import Session

KIB, MIB = 1024, 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Ceilings for one run. What exceeds one is killed, and the execution says which.

    All memory a run can hold is at most `processes * memory_bytes + tmp_bytes`: shared memory, memory files
    and new address spaces are refused by system call.
    """

    wall_s: float = 10.0
    """Seconds on the clock, counted inside the sandbox from the program's first instruction."""
    memory_bytes: int = 512 * MIB
    """Address space of a process."""
    processes: int = 1
    """1 refuses fork by system call; more allows that many processes and threads together."""
    threads: int = 64
    """Threads of a single process."""
    output_bytes: int = MIB
    """Of standard output, of standard error, and of one reply, each."""
    file_bytes: int = 16 * MIB
    """Largest file a program may write."""
    open_files: int = 64


class Outcome(StrEnum):
    """How a program ended."""

    EXITED = "exited"
    """By itself; the exit code may still be an error."""
    CRASHED = "crashed"
    """By a signal, or with its sandbox."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    COMPILE_ERROR = "compile_error"
    """It never ran: the source is not a program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What is known of a run. Everything but `elapsed_s` is the program's word: compare it outside."""

    outcome: Outcome
    exit_code: int | None = None
    """Negative for the signal that ended it; None when nobody knows."""
    stdout: bytes = b""
    stderr: bytes = b""
    elapsed_s: float = 0.0
    peak_memory_bytes: int = 0

    @property
    def ok(self) -> bool:
        """Ended by itself with exit code 0."""
        return self.outcome is Outcome.EXITED and self.exit_code == 0


@runtime_checkable
class Sandbox(Protocol):
    """Makes fresh places for untrusted programs. Picklable; holds no state between runs that a program can
    reach.

    Raises `SandboxError` when the sandbox itself cannot do its work; never for what a program does.
    """

    @property
    def limits(self) -> Limits:
        """Ceilings used when a run names none."""
        ...

    def session(self) -> "AbstractContextManager[Session]":
        """A fresh place, gone with everything in it when the context ends."""
        ...

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        files: Mapping[str, bytes] | None = None,
        limits: Limits | None = None,
    ) -> Execution:
        """Run one command in a fresh place that holds these files in its working directory."""
        ...
