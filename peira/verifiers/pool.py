"""Worker processes that judge, and are killed when they must be.

A verifier may raise, hang in C with every signal ignored, fork, print without end, eat memory or kill its own
process. Each of these becomes a verdict on exactly the attempt that was being judged; every other attempt is
judged as if nothing had happened.

    judge(jobs) -> queue -> one thread per worker: send a short list, await its verdicts one by one
                                  |  no verdict within the limit: kill the session, TIMEOUT for that attempt,
                                  |  the rest of the list returns to the queue, a new worker starts
                                  v
                            worker process (`worker.py`) on a socket of its own

Workers share neither pipe nor lock, so one that dies cannot jam another. The limit counts from the moment the
previous verdict arrived: queueing and loading a verifier are not charged to the attempt. This is why it is no
general process pool: those time whole tasks, share a locked pipe, and signal one process id.
"""

import asyncio
import contextlib
import itertools
import json
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from types import TracebackType

import psutil

from peira.errors import VerifierError
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict, VerdictStatus
from peira.verifiers.protocol import Verifier

STUCK_S = 60
"""A worker that takes or gives nothing for so long in the middle of a message is stuck."""
MAX_FRAME_BYTES = 4 * 1024 * 1024
"""A longer answer from a worker is not read: the worker is killed."""
MAX_LOAD_FAILURES = 3
"""A verifier that took so many workers down while it was being loaded is not loaded again."""
MAX_LIST = 64
"""Attempts sent to a worker at once; a worker that needs longer hands the rest back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One attempt for one verifier."""

    verifier: str
    """Its key in the pool."""
    task: Task
    attempt: Attempt
    timeout_s: float | None = None
    """Instead of the pool's limit."""


class _Batch:
    """The jobs of one call, their verdicts as they come, and the future that ends the wait."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.verdicts: list[Verdict | None] = [None] * len(jobs)
        self.missing = len(jobs)
        self.cancelled = False
        self.lock = threading.Lock()
        self.future: Future[list[Verdict]] = Future()

    def settle(self, index: int, verdict: Verdict) -> None:
        with self.lock:
            assert self.verdicts[index] is None, f"attempt {index} judged twice"
            self.verdicts[index] = verdict
            self.missing -= 1
            done = self.missing == 0
        if done and self.future.set_running_or_notify_cancel():
            self.future.set_result([verdict for verdict in self.verdicts if verdict is not None])


@dataclass(slots=True)
class _Item:
    serial: int
    batch: _Batch
    index: int
    job: Job
    retried: bool = False


class WorkerPool:
    """Judges attempts in worker processes. Use it as a context manager, or call `close`.

    Args:
        verifiers: by key; pickled once, loaded in each worker when first needed.
        workers: processes.
        timeout_s: wall-clock seconds for one attempt.
        memory_limit_bytes: address space of a worker beyond what it needs to start; None for no limit.
        load_timeout_s: wall-clock seconds for starting a worker and for loading a verifier in it.
        max_queued: attempts that may wait at once; a further call waits for room.

    Raises:
        VerifierError: a verifier that cannot be pickled.
    """

    def __init__(
        self,
        verifiers: Mapping[str, Verifier],
        *,
        workers: int = 2,
        timeout_s: float = 10.0,
        memory_limit_bytes: int | None = 2 * 1024**3,
        load_timeout_s: float = 120.0,
        max_queued: int = 100_000,
    ) -> None:
        self.timeout_s = timeout_s
        self._keys = frozenset(verifiers)
        self._blobs = pickle.dumps({key: _pickled(key, verifier) for key, verifier in verifiers.items()})
        self._memory_limit_bytes = memory_limit_bytes
        self.load_timeout_s = load_timeout_s
        self._max_queued = max_queued
        self._serials = itertools.count()
        self._queue: deque[_Item] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self.workers = workers
        self.restarts = 0
        """Workers replaced so far, after a kill, a crash or too much memory."""
        self._load_failures: dict[str, list[str]] = {}
        self._slots = [_Slot(self) for _ in range(workers)]
        for slot in self._slots:
            slot.thread.start()

    @property
    def queued(self) -> int:
        """Attempts that wait for a worker."""
        return len(self._queue)

    async def judge(self, jobs: Sequence[Job]) -> list[Verdict]:
        """Verdicts of these jobs, in their order. Cancelling drops what has not started."""
        while not self._has_room(len(jobs)):
            await asyncio.sleep(0.005)
        batch = self._submit(jobs)
        try:
            return await asyncio.wrap_future(batch.future)
        except asyncio.CancelledError:
            batch.cancelled = True
            raise

    def judge_blocking(self, jobs: Sequence[Job]) -> list[Verdict]:
        """`judge` for callers without an event loop."""
        while not self._has_room(len(jobs)):
            time.sleep(0.005)
        batch = self._submit(jobs)
        try:
            return batch.future.result()
        except BaseException:
            batch.cancelled = True
            raise

    def close(self) -> None:
        """Kill the workers. Whatever is still being judged ends as an ERROR verdict. May be called twice."""
        with self._changed:
            self._closing = True
            waiting = list(self._queue)
            self._queue.clear()
            self._changed.notify_all()
        for item in waiting:
            item.batch.settle(item.index, _CLOSED)
        for slot in self._slots:
            slot.end()
        for slot in self._slots:
            slot.thread.join()

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _note_load_failure(self, key: str, reason: str) -> None:
        with self._changed:
            self._load_failures.setdefault(key, []).append(reason)

    def _hopeless(self, key: str) -> str:
        """Why no further worker is spent on loading this verifier; empty while there is hope."""
        failures = self._load_failures.get(key, [])
        return failures[-1] if len(failures) >= MAX_LOAD_FAILURES else ""

    def _has_room(self, wanted: int) -> bool:
        return self._closing or not self._queue or len(self._queue) + wanted <= self._max_queued

    def _submit(self, jobs: Sequence[Job]) -> _Batch:
        unknown = {job.verifier for job in jobs} - self._keys
        if unknown:
            raise VerifierError(
                f"pool: verifier = {sorted(unknown)[0]!r}: expected one of {sorted(self._keys)}"
            )
        batch = _Batch(jobs)
        if not jobs:
            batch.future.set_result([])
        with self._changed:
            if self._closing:
                raise VerifierError("pool: it is closed; make a new one")
            self._queue.extend(
                _Item(next(self._serials), batch, index, job) for index, job in enumerate(jobs)
            )
            self._changed.notify_all()
        return batch

    def _take(self, most: int) -> list[_Item]:
        """The next items for one worker: few when few wait, so that all workers have something to do."""
        with self._changed:
            while True:
                if self._closing:
                    return []
                while self._queue and self._queue[0].batch.cancelled:
                    self._queue.popleft()
                if self._queue:
                    break
                self._changed.wait()
            share = -(-len(self._queue) // (2 * len(self._slots)))
            return [self._queue.popleft() for _ in range(max(1, min(most, share)))]

    def _give_back(self, items: Sequence[_Item]) -> None:
        with self._changed:
            if not self._closing:
                self._queue.extendleft(reversed(items))
                self._changed.notify_all()
                return
        for item in items:
            item.batch.settle(item.index, _CLOSED)


_CLOSED = Verdict.broken(VerdictStatus.ERROR, "the pool was closed before this attempt was judged")


_BROKEN = (OSError, EOFError, ValueError, RecursionError)
"""What reading from a worker may raise; a time limit is an OSError."""


class _LoadFailure(Exception):
    """The worker hung or died while it was loading a verifier."""


class _Slot:
    """One worker at a time, and the thread that feeds it."""

    def __init__(self, pool: WorkerPool) -> None:
        self.pool = pool
        self.thread = threading.Thread(target=self._run, name="peira-judge", daemon=True)
        self.worker: _Worker | None = None
        self.lock = threading.Lock()

    def end(self) -> None:
        with self.lock:
            if self.worker is not None:
                self.worker.kill()

    def _run(self) -> None:
        most = 1
        while items := self.pool._take(most):
            try:
                handed_back = self._judge(items)
            except BaseException as error:  # ours: nobody may wait for ever because of it
                for item in items:
                    if item.batch.verdicts[item.index] is None:
                        item.batch.settle(item.index, Verdict.broken(VerdictStatus.ERROR, f"pool: {error!r}"))
                self._drop()
                continue
            most = 1 if handed_back else min(2 * most, MAX_LIST)
        self._drop()

    def _judge(self, items: list[_Item]) -> bool:
        """Judge these; return whether some had to be handed back."""
        items = [item for item in items if not self._is_hopeless(item)]
        if not items:
            return False
        try:
            worker = self._started()
            worker.send(items)
        except _BROKEN as error:
            return self._blame(items, f"no worker could be started or reached: {error}")
        for position, item in enumerate(items):
            rest = items[position + 1 :]
            try:
                verdict, following = worker.answer(
                    item.serial, item.job.timeout_s or self.pool.timeout_s, self.pool.load_timeout_s
                )
            except _LoadFailure as error:
                reason = worker.ending() or str(error)
                self._drop()
                self.pool._note_load_failure(item.job.verifier, f"it cannot be loaded: {reason}")
                self.pool._give_back(items[position:])
                return True
            except TimeoutError as error:
                self._drop()
                item.batch.settle(item.index, Verdict.broken(VerdictStatus.TIMEOUT, str(error)))
                self.pool._give_back(rest)
                return True
            except _BROKEN as error:
                return self._blame(items[position:], worker.ending() or f"the worker sent {error}")
            worker.judged += 1
            if _out_of_memory(verdict) and worker.judged > 1 and not item.retried:
                return self._blame(items[position:], verdict.detail)
            item.batch.settle(item.index, verdict)
            if following == "retire":
                self._drop()
            if following != "go on":
                self.pool._give_back(rest)
                return bool(rest)
        return False

    def _is_hopeless(self, item: _Item) -> bool:
        """Settle an attempt whose verifier took several workers down while it was being loaded."""
        reason = self.pool._hopeless(item.job.verifier)
        if reason:
            item.batch.settle(item.index, Verdict.broken(VerdictStatus.ERROR, reason))
        return bool(reason)

    def _blame(self, items: list[_Item], reason: str) -> bool:
        """The worker is gone. Its first unjudged attempt is at fault, unless an earlier one may have been."""
        used = self.worker is not None and self.worker.judged > 0
        self._drop()
        first, rest = items[0], items[1:]
        if self.pool._closing:
            first.batch.settle(first.index, _CLOSED)
        elif used and not first.retried:
            rest = [replace(first, retried=True), *rest]
        else:
            first.batch.settle(first.index, Verdict.broken(VerdictStatus.ERROR, reason))
        self.pool._give_back(rest)
        return True

    def _started(self) -> "_Worker":
        with self.lock:
            if self.worker is None:
                if self.pool._closing:
                    raise EOFError("the pool is closing")
                self.worker = _Worker(self.pool._memory_limit_bytes)
        self.worker.begin(self.pool._blobs, self.pool.load_timeout_s)
        return self.worker

    def _drop(self) -> None:
        with self.lock:
            if self.worker is not None:
                self.worker.kill()
                self.worker.forget()
                self.worker = None
                self.pool.restarts += 1


class _Worker:
    """A process, its socket, and how to end it with everything it started."""

    def __init__(self, memory_limit_bytes: int | None) -> None:
        self.mark = uuid.uuid4().hex
        ours, theirs = socket.socketpair()
        # A thread that a verifier left behind may keep the worker from ever reading on.
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", STUCK_S, 0))
        with ours, theirs:
            descriptor = theirs.fileno()
            # Not `multiprocessing`: that would run the user's main module again in every worker.
            program = (
                f"import sys; sys.path[:] = {sys.path!r}; "
                f"from peira.verifiers.worker import main; main({descriptor}, {memory_limit_bytes!r})"
            )
            self.process = subprocess.Popen(
                [sys.executable, "-c", program],
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={"OMP_NUM_THREADS": "1", **os.environ, _MARK: self.mark},
            )
            self.connection = Connection(ours.detach())
        self.judged = 0
        self._begun = False
        self._exit = os.pidfd_open(self.process.pid) if hasattr(os, "pidfd_open") else None

    def begin(self, blobs: bytes, within_s: float) -> None:
        """Hand over the verifiers and wait until the interpreter is up; nothing after the first time."""
        if self._begun:
            return
        self.connection.send_bytes(blobs)
        if self._frame(within_s, "starting a worker") != "ready":
            raise ValueError("something else than 'ready'")
        self._begun = True

    def send(self, items: Sequence[_Item]) -> None:
        """Hand over a list to judge."""
        jobs = [(item.serial, item.job.verifier, item.job.task, item.job.attempt) for item in items]
        self.connection.send_bytes(pickle.dumps(jobs))

    def answer(self, serial: int, limit_s: float, load_timeout_s: float) -> tuple[Verdict, str]:
        """The verdict on this attempt, and what the worker does next.

        Raises:
            TimeoutError: the limit passed.
            EOFError, OSError, ValueError: the worker died, or sent something else.
        """
        frame = self._frame(limit_s, "judging")
        if frame == "load":
            try:
                loaded = self._frame(load_timeout_s, "loading the verifier")
            except _BROKEN as error:
                raise _LoadFailure(str(error)) from error
            if loaded != "loaded":
                raise ValueError("something else than 'loaded'")
            frame = self._frame(limit_s, "judging")
        return _read(frame, serial)

    def _frame(self, within_s: float, what: str) -> object:
        sources: list[Connection | int] = [self.connection]
        if self._exit is not None:
            sources.append(self._exit)
        ready = wait(sources, timeout=within_s)
        if not ready:
            raise TimeoutError(f"{what} took longer than {within_s:g} s")
        # A descendant may hold the socket open after the worker died: then only its exit is seen.
        if self.connection not in ready and not self.connection.poll(0):
            raise EOFError("nothing")
        return json.loads(self.connection.recv_bytes(MAX_FRAME_BYTES))

    def ending(self) -> str:
        """How the process ended, without reaping it; empty while it lives."""
        for _ in range(20):
            state = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if state is not None:
                killed = state.si_code != os.CLD_EXITED
                code = state.si_status
                name = f"signal {signal.Signals(code).name}" if killed else f"exit code {code}"
                return f"the verifier ended its worker process ({name})"
            time.sleep(0.01)
        return ""

    def kill(self) -> None:
        """End the process, its session and everything it started, whatever signals they ignore."""
        if self.process.returncode is not None:
            return
        with contextlib.suppress(psutil.Error):
            psutil.Process(self.process.pid).suspend()
        for _ in range(20):  # a child may fork while its siblings are being killed
            alive = self._descendants()
            if not alive:
                break
            for process in alive:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # also when the leader is dead: it is not reaped yet

    def _descendants(self) -> list[psutil.Process]:
        """Living children of children, and orphans of a dead worker by the mark in their environment."""
        found: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self.process.pid)
            found = root.children(recursive=True)
            if root.status() == psutil.STATUS_ZOMBIE:
                found += [process for process in psutil.process_iter() if self._is_marked(process)]
        return [process for process in found if _is_alive(process)]

    def _is_marked(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error, OSError):
            return bool(process.environ().get(_MARK) == self.mark)
        return False

    def forget(self) -> None:
        """Reap the killed process and close what belonged to it."""
        self.process.wait()
        self.connection.close()
        if self._exit is not None:
            os.close(self._exit)


_MARK = "PEIRA_WORKER"


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def _read(frame: object, serial: int) -> tuple[Verdict, str]:
    match frame:
        case [
            int(found),
            str(following),
            float() | int() | None as score,
            str(status),
            str(detail),
            dict(parts),
            list(steps),
            list(flags),
        ]:
            if found != serial:
                raise ValueError(f"the verdict of another attempt ({found}, expected {serial})")
            verdict = Verdict(
                score=score,
                status=VerdictStatus(status),
                detail=detail,
                parts=parts,
                step_scores=tuple(steps),
                flags=tuple(flags),
            )
            return verdict, following
    raise ValueError(f"{str(frame)[:80]!r}")


def _out_of_memory(verdict: Verdict) -> bool:
    return verdict.status is VerdictStatus.ERROR and verdict.detail.startswith("MemoryError")


def _pickled(key: str, verifier: Verifier) -> bytes:
    if type(verifier).__module__ == "__main__":
        raise VerifierError(
            f"verifier {key!r}: {type(verifier).__name__} is defined in the main program, which workers "
            "do not run; move it to a file of its own and import it"
        )
    try:
        return pickle.dumps(verifier)
    except Exception as error:
        raise VerifierError(
            f"verifier {key!r}: {type(verifier).__name__} cannot be pickled ({error}); "
            "keep open files, locks and lambdas out of its fields, or open them in `prepare`"
        ) from error
