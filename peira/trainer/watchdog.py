"""A thread that ends the process when a stage stops making progress.

A hang in a kernel, a collective or a driver cannot be interrupted from Python, so the watchdog does not try:
it names the stage and how long it has been silent, prints every thread's stack, and leaves with its own exit
code. What was saved stays saved, and `--resume` continues from there.

    loop --beat(stage)--> [last beat] <--looks every second-- watchdog thread --silence > limit--> exit 7
"""

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from peira.errors import ExitCode


class Watchdog:
    """Use as a context manager; call `beat` whenever something moved. Without a limit it does nothing."""

    def __init__(self, limit_s: float | None, *, leave: Callable[[int], None] = os._exit) -> None:
        self._limit_s = limit_s
        self._leave = leave
        self._stage = "start"
        self._last = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peira-watchdog", daemon=True)

    def beat(self, stage: str) -> None:
        """Something moved in this stage."""
        self._stage, self._last = stage, time.monotonic()

    def __enter__(self) -> "Watchdog":
        self.beat("start")
        if self._limit_s is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _watch(self) -> None:
        assert self._limit_s is not None
        while not self._done.wait(min(1.0, self._limit_s / 4)):
            silence = time.monotonic() - self._last
            if silence > self._limit_s:
                print(
                    f"peira: watchdog: stage {self._stage!r} made no progress for {silence:.3g} s "
                    f"(stop.stage_timeout_s = {self._limit_s:g}); the last checkpoint is whole: continue "
                    "with --resume",
                    file=sys.stderr,
                    flush=True,
                )
                with suppress(OSError):  # a notebook's stderr is no file
                    faulthandler.dump_traceback(all_threads=True)
                self._leave(int(ExitCode.WATCHDOG))
                return
