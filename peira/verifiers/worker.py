"""The far side of the pool: one process that judges what it is sent.

    parent                                  worker
    pickle {key: blob of the verifier}  ->  kept; a verifier is loaded when first needed
    pickle [(serial, key, task, attempt)] -> judged in order
                                        <-  "ready"             once, when the interpreter has started
                                        <-  "load" / "loaded"   around a verifier's first use
                                        <-  [serial, next, verdict's fields ...] one JSON frame per attempt

`next` is what follows: "go on", "yield" (the rest of the list comes back unjudged, for others to share) or
"retire" (the same, and too much memory is held: replace this worker).

What travels back is JSON, never pickle: nothing a verifier returns is executed by the parent. The parent
kills this process, its session and its descendants, so nothing here needs to defend itself with signals.
"""

import json
import os
import pickle
import sys
import time
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from peira.types.verdict import Verdict, VerdictStatus

SLICE_S = 0.05
"""A worker that has spent this long on one list hands the rest back, so that idle workers can share it."""
MAX_DETAIL = 500
MAX_ITEMS = 10_000
"""Longest detail in characters, most parts, step scores or flags that a verdict may carry."""


def main(descriptor: int, memory_limit_bytes: int | None) -> None:
    """Serve until the connection closes."""
    _die_with_parent()
    connection = Connection(descriptor)
    blobs: dict[str, bytes] = pickle.loads(connection.recv_bytes())
    loaded: dict[str, Any] = {}
    home = os.getpid()
    memory = _Memory(memory_limit_bytes)
    memory.limit()
    connection.send_bytes(b'"ready"')
    while True:
        try:
            jobs: Sequence[tuple[int, str, Any, Any]] = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)
        started = time.monotonic()
        for done, (serial, key, task, attempt) in enumerate(jobs, start=1):
            if key not in loaded:
                connection.send_bytes(b'"load"')
                memory.lift()
                loaded[key] = _load(blobs[key])
                memory.limit()
                connection.send_bytes(b'"loaded"')
            verdict = _judge(loaded[key], task, attempt)
            if os.getpid() != home:  # the verifier forked, and this is the copy
                os._exit(0)
            following = "go on"
            if memory.is_high():
                following = "retire"
            elif done < len(jobs) and time.monotonic() - started > SLICE_S:
                following = "yield"
            connection.send_bytes(_frame(serial, following, verdict))
            if following != "go on":
                break


def _load(blob: bytes) -> Any:
    """The verifier, or the reason why there is none."""
    try:
        verifier = pickle.loads(blob)
        prepare = getattr(verifier, "prepare", None)
        if prepare is not None:
            prepare()
        return verifier
    except BaseException as error:
        return _Missing(f"could not be loaded: {describe(error)}")


class _Missing:
    def __init__(self, reason: str) -> None:
        self.reason = reason


def _judge(verifier: Any, task: Any, attempt: Any) -> Verdict:
    if isinstance(verifier, _Missing):
        return Verdict.broken(VerdictStatus.ERROR, verifier.reason)
    try:
        verdict = verifier.verify(task, attempt)
    except BaseException as error:  # also SystemExit, and timeouts that do not derive from Exception
        return Verdict.broken(VerdictStatus.ERROR, describe(error))
    if not isinstance(verdict, Verdict):
        return Verdict.broken(
            VerdictStatus.ERROR,
            f"{type(verifier).__name__}.verify returned {_short(verdict)}: expected a Verdict",
        )
    return verdict


def _frame(serial: int, following: str, verdict: Verdict) -> bytes:
    try:
        score = None if verdict.score is None else float(verdict.score)
        parts = {str(name): float(value) for name, value in verdict.parts.items()}
        steps = [float(value) for value in verdict.step_scores]
        flags = [str(flag) for flag in verdict.flags]
        if max(len(parts), len(steps), len(flags)) > MAX_ITEMS:
            raise ValueError(f"more than {MAX_ITEMS} parts, step scores or flags")
        fields = [score, VerdictStatus(verdict.status).value, str(verdict.detail)[:MAX_DETAIL]]
        return json.dumps([serial, following, *fields, parts, steps, flags]).encode()
    except BaseException as error:
        detail = f"the verdict cannot be written down: {describe(error)}"[:MAX_DETAIL]
        return json.dumps([serial, following, None, VerdictStatus.ERROR.value, detail, {}, [], []]).encode()


def describe(error: BaseException) -> str:
    """One line about an exception: its type, its message, and the last line of ours it passed."""
    try:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    except BaseException:
        text = type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    where = f" (at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return text[: MAX_DETAIL - len(where)] + where


def _short(value: object) -> str:
    try:
        text = repr(value)
    except BaseException:
        text = object.__repr__(value)
    return text if len(text) <= 80 else text[:77] + "..."


class _Memory:
    """Address space beyond what the process needed to start."""

    def __init__(self, limit_bytes: int | None) -> None:
        self.limit_bytes = limit_bytes if sys.platform == "linux" else None
        self.base = self._size()

    def _size(self) -> int:
        if self.limit_bytes is None:
            return 0
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")

    def lift(self) -> None:
        if self.limit_bytes is not None:
            import resource

            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))

    def limit(self) -> None:
        if self.limit_bytes is not None:
            import resource

            self.base = self._size()
            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            wanted = self.base + self.limit_bytes
            soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

    def is_high(self) -> bool:
        """Whether half of the limit is held between attempts: a leak, or a cache that grew."""
        return self.limit_bytes is not None and self._size() - self.base > self.limit_bytes // 2


def _die_with_parent() -> None:
    """Ask Linux to end this process with its parent, and to hand it every orphan among its descendants."""
    if sys.platform != "linux":
        return
    import ctypes
    import signal

    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: a daemonised grandchild stays findable
