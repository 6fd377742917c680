"""The host's side of one open sandbox: requests out, replies in, the clock that counts, and the kill."""

import base64
import contextlib
import json
import os
import secrets
import select
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peira.errors import SandboxError
from peira.sandbox.guest import PYTHON, decode, encode
from peira.sandbox.protocol import Execution, Limits, Outcome

GRACE_S = 2.0
"""How long after a run's own limit the host waits before it kills the whole sandbox."""
START_S = 30.0
"""How long a sandbox may take to come up on a busy machine."""
FRAME_BYTES = 64 * 1024 * 1024
"""Largest request: sources, files and inputs come from the dataset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What one call of a loaded module gave: exactly one of value, error, ask or ended is set."""

    value: Any = None
    error: tuple[str, ...] = ()
    """Names of the exception's class and its bases."""
    message: str = ""
    ask: Any = None
    """A question that a trusted module put to the host; answer it with `Session.answer`."""
    ended: Execution | None = None
    """The program is gone, or said something that is no reply."""
    elapsed_s: float = 0.0


class Guest:
    """A started sandbox process and its two pipes; `ready` once it has said so."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        contained: bool,
        pass_fds: Sequence[int] = (),
        cleanup: Callable[[], None] = lambda: None,
    ) -> None:
        self._contained, self._cleanup = contained, cleanup
        self.closed = False
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=pass_fds,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"},
            cwd="/",
            start_new_session=True,
            bufsize=0,
        )
        assert self.process.stdin is not None
        os.set_blocking(self.process.stdin.fileno(), False)

    def send(self, body: bytes, deadline: float) -> None:
        """Write one frame; EOFError when the guest is gone, TimeoutError when it does not read."""
        assert self.process.stdin is not None
        fd = self.process.stdin.fileno()
        view = memoryview(struct.pack(">I", len(body)) + body)
        poller = select.poll()
        poller.register(fd, select.POLLOUT)
        while view:
            if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise TimeoutError
            try:
                view = view[os.write(fd, view[: 1 << 16]) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise EOFError from error

    def receive(self, deadline: float, limit: int) -> bytes:
        """Read one frame of at most `limit` bytes; EOFError when the guest is gone or speaks no frames."""
        (length,) = struct.unpack(">I", self._read(4, deadline))
        if length > limit:
            raise EOFError
        return self._read(length, deadline)

    def _read(self, count: int, deadline: float) -> bytes:
        assert self.process.stdout is not None
        fd = self.process.stdout.fileno()
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        parts: list[bytes] = []
        while count:
            if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise TimeoutError
            part = os.read(fd, min(count, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def await_ready(self) -> None:
        """Wait until the interpreter inside is up.

        Raises:
            SandboxError: it did not come up; carries what it said.
        """
        try:
            self.receive(time.monotonic() + START_S, 1000)
        except (EOFError, TimeoutError) as error:
            self.process.kill()
            said = self.process.stderr.read(4000) if self.process.stderr else b""
            self.close()
            text = said.decode(errors="replace").strip() or "no word from it"
            raise SandboxError(f"sandbox: start: expected the guest to come up, got: {text}") from error

    def close(self) -> None:
        """Kill everything in the sandbox and forget it. Safe to call twice."""
        if self.closed:
            return
        self.closed = True
        self._kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        self.process.wait()
        self._cleanup()

    def _kill(self) -> None:
        """Kill what the started process has started, then the process.

        Bubblewrap's child is the first process of the namespace: killing it kills all others, and bubblewrap
        collects it. Killing bubblewrap first would leave that to whoever adopts orphans here, if anyone.
        """
        pid = self.process.pid
        with contextlib.suppress(OSError, ValueError):
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
                with contextlib.suppress(OSError):
                    os.killpg(int(child), signal.SIGKILL)
        if self._contained:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(2.0)
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)


class Session:
    """One fresh place for one untrusted program. Leaving the context kills everything in it."""

    def __init__(self, guest: Guest, limits: Limits) -> None:
        self._guest, self.limits = guest, limits
        self._nonce = ""
        self._ran = False

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self._guest.close()

    def write(self, path: str, data: bytes) -> None:
        """Put a file into the working directory.

        Raises:
            SandboxError: the path leaves the working directory, or the file does not fit.
        """
        if path.startswith("/") or ".." in Path(path).parts:
            raise SandboxError(
                f"sandbox: write: path = {path!r}: expected a path inside the working directory"
            )
        reply = self._ask(
            {"verb": "write", "path": path, "data": base64.b64encode(data).decode()}, self.limits
        )
        if isinstance(reply, Execution):
            raise SandboxError(f"sandbox: write: {path}: the sandbox is gone ({reply.outcome.value})")

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", limits: Limits | None = None) -> Execution:
        """Run one command in the working directory to its end; everything it started is dead afterwards.

        `("{python}", "file.py", ...)` runs in a fork of the interpreter that is already up.

        Raises:
            SandboxError: the sandbox could not set the program up.
        """
        limits = limits or self.limits
        request = {
            "verb": "run",
            "argv": list(argv),
            "stdin": base64.b64encode(stdin).decode(),
            "limits": _plain(limits),
        }
        reply = self._ask(request, limits)
        return reply if isinstance(reply, Execution) else _execution(reply)

    def load(
        self, source: str, *, name: str = "solution", limits: Limits | None = None
    ) -> Execution | tuple[str, ...]:
        """Execute Python source as a module that stays loaded; its public names, or how it ended instead."""
        limits = limits or self.limits
        self._nonce = ""
        reply = self._ask(
            {
                "verb": "load",
                "source": source,
                "name": name,
                "limits": _plain(limits),
                "frame_limit": FRAME_BYTES,
            },
            limits,
        )
        if isinstance(reply, Execution):
            return reply
        if "said" not in reply:
            return _execution(reply)
        said = _said(reply)
        names = said.get("loaded") if isinstance(said, dict) else None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return Execution(outcome=Outcome.CRASHED, stderr=b"said something else than its names")
        return tuple(names)

    def call(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        limits: Limits | None = None,
    ) -> Reply:
        """Call a function (`f`) or a method on a new instance (`Class.f`) of the loaded module.

        Arguments and the result are plain data; what is not plain comes back as `guest.Foreign`.
        """
        body = {
            "verb": "call",
            "name": name,
            "args": encode(list(args)),
            "kwargs": encode(dict(kwargs or {})),
        }
        return self.request(body, limits=limits)

    def request(self, body: Mapping[str, Any], *, limits: Limits | None = None, raw: bool = False) -> Reply:
        """Send one request to the loaded module under a fresh nonce. `raw` keeps the value in wire form."""
        self._nonce = secrets.token_hex(16)
        return self._exchange({**body, "nonce": self._nonce}, limits or self.limits, raw=raw)

    def answer(self, value: Any, *, limits: Limits | None = None) -> Reply:
        """Answer the question of the call in progress; what it says next."""
        return self._exchange({"answer": value}, limits or self.limits, raw=False)

    def _exchange(self, body: Mapping[str, Any], limits: Limits, *, raw: bool) -> Reply:
        reply = self._ask({"verb": "call", "body": json.dumps(body), "limits": _plain(limits)}, limits)
        if isinstance(reply, Execution):
            return Reply(ended=reply)
        if "said" not in reply:
            return Reply(ended=_execution(reply))
        said, elapsed_s = _said(reply), float(reply.get("elapsed_s", 0.0))
        try:
            if said["nonce"] != self._nonce:
                raise ValueError("a reply to something else")
            if "ask" in said:
                return Reply(ask=said["ask"], elapsed_s=elapsed_s)
            if "error" in said:
                names = tuple(str(name) for name in said["error"])
                return Reply(error=names or ("?",), message=str(said["message"]), elapsed_s=elapsed_s)
            return Reply(value=said["value"] if raw else decode(said["value"]), elapsed_s=elapsed_s)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            return Reply(ended=Execution(outcome=Outcome.CRASHED, stderr=f"no reply: {error}".encode()[:500]))

    def _ask(self, request: Mapping[str, Any], limits: Limits) -> dict[str, Any] | Execution:
        """One request, one reply; an execution when the sandbox did not live to give it."""
        deadline = time.monotonic() + limits.wall_s + GRACE_S
        body = json.dumps(request).encode()
        if len(body) > FRAME_BYTES:
            raise SandboxError(
                f"sandbox: {request['verb']}: {len(body)} bytes: expected at most {FRAME_BYTES}"
            )
        try:
            self._guest.send(body, time.monotonic() + START_S)
            reply = json.loads(self._guest.receive(deadline, 4 * limits.output_bytes + 65536))
        except TimeoutError:
            self._guest.close()
            return Execution(outcome=Outcome.TIMEOUT, elapsed_s=limits.wall_s)
        except (EOFError, OSError, ValueError, RecursionError):
            self._guest.close()  # whoever destroys its own sandbox has crashed
            return Execution(outcome=Outcome.CRASHED)
        if not isinstance(reply, dict):
            self._guest.close()
            return Execution(outcome=Outcome.CRASHED)
        ran, self._ran = self._ran, self._ran or request["verb"] in ("run", "load")
        if "broken" in reply and ran:
            self._guest.close()  # a program was here before: it does not get to call itself unjudged
            return Execution(outcome=Outcome.CRASHED, stderr=str(reply["broken"])[:500].encode())
        if "broken" in reply:
            raise SandboxError(f"sandbox: {request['verb']}: {reply['broken']}")
        return reply


def run_once(
    session: Session,
    argv: Sequence[str],
    *,
    stdin: bytes,
    files: Mapping[str, bytes] | None,
    limits: Limits | None,
) -> Execution:
    """Write the files, run the command, end the session."""
    with session:
        for path, data in (files or {}).items():
            session.write(path, data)
        return session.run(argv, stdin=stdin, limits=limits)


def _plain(limits: Limits) -> dict[str, Any]:
    return {name: getattr(limits, name) for name in Limits.__slots__}


def _said(reply: Mapping[str, Any]) -> Any:
    try:
        return json.loads(base64.b64decode(reply["said"]).decode())
    except (ValueError, TypeError, RecursionError):
        return None


def _execution(reply: Mapping[str, Any]) -> Execution:
    try:
        return Execution(
            outcome=Outcome(reply["outcome"]),
            exit_code=reply["exit_code"] if isinstance(reply["exit_code"], int) else None,
            stdout=base64.b64decode(reply.get("stdout", "")),
            stderr=base64.b64decode(reply.get("stderr", "")),
            elapsed_s=float(reply.get("elapsed_s", 0.0)),
            peak_memory_bytes=int(reply.get("peak_memory_bytes", 0)),
        )
    except (ValueError, TypeError, KeyError):
        return Execution(outcome=Outcome.CRASHED)


__all__ = ["PYTHON", "Guest", "Reply", "Session", "run_once"]
