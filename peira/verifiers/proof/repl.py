"""Lean REPLs kept open between attempts, each inside a sandbox of its own.

    ask(header, command) -> REPL of that header (started once: import, then environment 0)
                              {"cmd": command, "env": 0} -> messages, sorries

Every command branches from environment 0, so nothing that an attempt declares or sets reaches the next. A
REPL only says early that a proof fails; what it accepts is compiled and checked afresh, so a REPL that was
talked into something costs time and gives no reward.
"""

import atexit
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from peira.errors import VerifierError
from peira.sandbox.protocol import MIB, Limits, Sandbox
from peira.sandbox.session import Session

_DRIVER = """
import json, os, subprocess

_process = None

def start(argv, variables):
    global _process
    _process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={**os.environ, **variables},
    )

def ask(command):
    _process.stdin.write(json.dumps(command).encode() + b"\\n\\n")
    _process.stdin.flush()
    lines = []
    for line in _process.stdout:
        if not line.strip() and lines:
            return b"".join(lines).decode(errors="replace")
        lines.append(line)
    raise EOFError(f"the REPL ended with code {_process.wait()}")
"""
_OPEN_S = 86400.0


class ReplGone(Exception):
    """The REPL ended, hung, or said something that is no answer; it is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplSettings:
    """How a REPL is started."""

    sandbox: Sandbox
    argv: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()
    memory_bytes: int = 8 * 1024 * MIB
    uses: int = 100
    """Attempts before a REPL is replaced by a fresh one; environments that it keeps fill its memory."""


class Repl:
    """One open REPL whose environment 0 holds a header."""

    def __init__(self, settings: ReplSettings, header: str, *, start_s: float) -> None:
        self.settings, self.left = settings, settings.uses
        self._session: Session = settings.sandbox.session().__enter__()
        limits = Limits(
            wall_s=_OPEN_S,
            memory_bytes=settings.memory_bytes,
            processes=64,
            threads=256,
            output_bytes=4 * MIB,
            open_files=256,
        )
        try:
            self._session.load(_DRIVER, name="repl", limits=limits)
            started = self._session.call(
                "start", (list(settings.argv), dict(settings.variables)), limits=Limits(wall_s=start_s)
            )
            if started.error or started.ended:
                raise VerifierError(
                    f"lean: repl: {' '.join(settings.argv)}: {started.message or 'not started'}"
                )
            reply = self._said({"cmd": header}, start_s)
        except BaseException:
            self.close()
            raise
        errors = problems(reply)
        if errors or reply.get("env") != 0:
            self.close()
            raise VerifierError(f"lean: repl: header: expected it to compile; {errors or reply}"[:500])

    def ask(self, command: str, wall_s: float) -> Mapping[str, Any]:
        """Elaborate a command behind the header.

        Raises:
            ReplGone: no answer within the time; the REPL is closed.
        """
        self.left -= 1
        return self._said({"cmd": command, "env": 0}, wall_s)

    def close(self) -> None:
        """Kill it."""
        self._session.__exit__(None, None, None)

    def _said(self, command: Mapping[str, Any], wall_s: float) -> dict[str, Any]:
        reply = self._session.call("ask", (dict(command),), limits=Limits(wall_s=wall_s))
        try:
            if not isinstance(reply.value, str):
                raise ValueError(reply.message or (reply.ended.outcome.value if reply.ended else "no answer"))
            value = json.loads(reply.value)
            if not isinstance(value, dict):
                raise ValueError("no object")
        except ValueError as error:
            self.close()
            raise ReplGone(str(error)) from error
        return value


class ReplPool:
    """Open REPLs by header, the least recently used closed first. For one thread of a process."""

    def __init__(self, size: int = 2) -> None:
        self._size = size
        self._open: OrderedDict[tuple[ReplSettings, str], Repl] = OrderedDict()

    def ask(
        self, settings: ReplSettings, header: str, command: str, *, start_s: float, wall_s: float
    ) -> Mapping[str, Any]:
        """Elaborate a command behind a header; a REPL that is gone is replaced once.

        Raises:
            ReplGone: the second one did not answer either.
            VerifierError: it cannot be started, or the header does not compile.
        """
        key = (settings, header)
        for attempt in (1, 2):
            repl = self._open.pop(key, None)
            if repl is None or repl.left <= 0:
                if repl is not None:
                    repl.close()
                repl = Repl(settings, header, start_s=start_s)
            self._open[key] = repl
            while len(self._open) > self._size:
                self._open.popitem(last=False)[1].close()
            try:
                return repl.ask(command, wall_s)
            except ReplGone:
                del self._open[key]
                if attempt == 2:
                    raise
        raise AssertionError

    def close(self) -> None:
        """Kill all of them."""
        while self._open:
            self._open.popitem()[1].close()


def problems(reply: Mapping[str, Any]) -> str:
    """The first error or `sorry` of an answer, or an empty text."""
    if isinstance(reply.get("message"), str):  # the REPL did not understand the command itself
        return str(reply["message"])
    for message in reply.get("messages") or ():
        if isinstance(message, Mapping) and message.get("severity") == "error":
            return " ".join(str(message.get("data")).split())[:300]
    return "rests on sorry" if reply.get("sorries") else ""


POOL = ReplPool()
atexit.register(POOL.close)
