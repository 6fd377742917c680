"""Interpreters started ahead of need, each used once.

Starting a sandbox costs tens of milliseconds, most of them waiting for the kernel. A pool keeps a few fresh
ones up; taking one starts its replacement. None is ever shared or reused: what is warm is only an empty
interpreter.

All are started from one thread that lives as long as the process, because the kernel ties "die with the
parent" to the *thread* that started a child.
"""

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor

from peira.errors import SandboxError
from peira.sandbox.session import Guest


class WarmPool:
    """At most `size` guests that wait."""

    def __init__(self, spawn: Callable[[], Guest], size: int, launcher: ThreadPoolExecutor) -> None:
        self._spawn, self._size, self._launcher = spawn, size, launcher
        self._waiting: deque[Future[Guest]] = deque()
        self._lock = threading.Lock()
        self._closed = False

    def take(self) -> Guest:
        """A fresh guest that is ready. Those that died while they waited are passed over.

        Raises:
            SandboxError: one that was started just now did not come up.
        """
        while True:
            with self._lock:
                waited = bool(self._waiting)
                future = self._waiting.popleft() if waited else self._launcher.submit(self._spawn)
                while len(self._waiting) < self._size and not self._closed:
                    self._waiting.append(self._launcher.submit(self._spawn))
            try:
                guest = future.result()
                guest.await_ready()
            except SandboxError:
                if not waited:
                    raise
                continue
            if guest.process.poll() is None:
                return guest
            guest.close()

    def close(self) -> None:
        """Kill the waiting ones."""
        with self._lock:
            self._closed = True
            waiting, self._waiting = list(self._waiting), deque()
        for future in waiting:
            if not future.cancel() and future.exception() is None:
                future.result().close()


_pools: dict[Hashable, WarmPool] = {}
_launcher: ThreadPoolExecutor | None = None
_lock = threading.Lock()


def pool_of(key: Hashable, spawn: Callable[[], Guest], size: int) -> WarmPool:
    """This process's pool for sandboxes with these settings. A fork starts its own."""
    global _launcher
    with _lock:
        if _launcher is None:
            _launcher = ThreadPoolExecutor(1, thread_name_prefix="sandbox-launcher")
        if key not in _pools:
            _pools[key] = WarmPool(spawn, size, _launcher)
        return _pools[key]


@atexit.register
def close_pools() -> None:
    """Kill every waiting guest of this process; later sessions start afresh."""
    global _launcher
    with _lock:
        pools, launcher, _launcher = list(_pools.values()), _launcher, None
        _pools.clear()
    for pool in pools:
        pool.close()
    if launcher is not None:
        launcher.shutdown()


def _forget() -> None:
    """In a forked child: the guests, the thread and perhaps a held lock belong to the parent."""
    global _launcher, _lock
    _lock = threading.Lock()
    _launcher = None
    _pools.clear()


os.register_at_fork(after_in_child=_forget)
