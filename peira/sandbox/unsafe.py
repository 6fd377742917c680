"""Programs under resource limits only. Not a sandbox: for machines whose loss would not matter."""

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from peira.sandbox import guest
from peira.sandbox.pool import pool_of
from peira.sandbox.protocol import Execution, Limits
from peira.sandbox.session import FRAME_BYTES, Guest, Session, run_once


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsafeProcessSandbox:
    """The same interface with nothing between the program and this user's files, processes and network.

    Limits on time, memory, file and output size hold; expected values and comparison are still elsewhere. A
    program that means harm can do all the harm this user can do, and can outlive its run.
    """

    limits: Limits = field(default_factory=Limits)
    python: str = sys.executable
    python_path: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    warm: int = 1

    def session(self) -> Session:
        """A fresh process in a fresh temporary folder."""
        return Session(pool_of(self, self._spawn, self.warm).take(), self.limits)

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        files: Mapping[str, bytes] | None = None,
        limits: Limits | None = None,
    ) -> Execution:
        """Run one command in a fresh temporary folder that holds these files."""
        return run_once(self.session(), argv, stdin=stdin, files=files, limits=limits)

    def _spawn(self) -> Guest:
        work = tempfile.mkdtemp(prefix="peira-unsafe-")
        settings = {
            "uid": None,
            "contained": False,
            "work": work,
            "python_path": list(self.python_path),
            "preload": list(self.preload),
            "frame_limit": FRAME_BYTES,
            "no_fork": "",
        }
        argv = [self.python, "-I", "-B", "-X", "utf8", guest.__file__, json.dumps(settings)]
        return Guest(argv, contained=False, cleanup=lambda: shutil.rmtree(work, ignore_errors=True))
