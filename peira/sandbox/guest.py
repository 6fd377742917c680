"""The program that runs inside a sandbox and starts the untrusted ones. Standard library only.

    host                              guest (this file)              untrusted child
    request frame  --- pipe --->      write | run | load | call      forked, limited, never sees the pipes
    reply frame    <-- pipe ----      result, output, status   <---  stdout, stderr, channel (fd 3)

The host trusts nothing that comes out of here: a child may tamper with its guest, and gains nothing by it,
because expected values, comparison and the clock that counts are outside. Frames are a length and a JSON
object; values are plain data (`encode`), never pickles. Each call carries a nonce that did not exist before
the call.
"""

import base64
import contextlib
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
import types
from collections.abc import Callable
from typing import Any

CHANNEL = 3
PYTHON = "{python}"
_CONTAINERS: tuple[type, ...] = (dict, list, tuple, set, frozenset)


class Refused(Exception):
    """A value that is not plain data, or a reply that is too large."""


class Foreign:
    """What came instead of plain data: a subclass of a plain type, or some other object."""

    def __init__(self, type_name: str, value: Any = None) -> None:
        self.type_name, self.value = type_name, value

    def __repr__(self) -> str:
        return f"<{self.type_name} object>"


def encode(value: Any, opaque: Callable[[Any], Any] | None = None) -> Any:
    """Plain data as JSON with tags, by exact type; no method of the value is called.

    A subclass keeps the contents of its plain base and names itself; anything else goes to `opaque`.
    """
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if value - value == 0 else {"float": repr(value)}
    if kind is list:
        return [encode(item, opaque) for item in value]
    if kind in (tuple, set, frozenset):
        return {kind.__name__: [encode(item, opaque) for item in value]}
    if kind is dict:
        return {"dict": [[encode(key, opaque), encode(item, opaque)] for key, item in value.items()]}
    if kind in (bytes, bytearray):
        return {kind.__name__: base64.b64encode(value).decode()}
    if kind is complex:
        return {"complex": [encode(value.real), encode(value.imag)]}
    if opaque is not None:
        return opaque(value)
    for base in _CONTAINERS:
        if base in kind.__mro__:
            contents: Any = dict.items if base is dict else base.__iter__  # type: ignore[attr-defined]
            plain = base(contents(value))
            return {"subclass": kind.__name__[:80], "of": encode(plain)}
    return {"opaque": str(kind.__name__)[:80]}


def decode(wire: Any, opaque: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """What `encode` wrote, as plain data; `Foreign` where the original was not plain.

    Raises:
        ValueError: not something that `encode` writes.
    """
    if wire is None or isinstance(wire, bool | int | float | str):
        return wire
    if isinstance(wire, list):
        return [decode(item, opaque) for item in wire]
    if not isinstance(wire, dict) or not wire:
        raise ValueError("wire: expected plain data")
    tag, body = next(iter(wire.items()))
    try:
        if tag == "float":
            return float(body)
        if tag in ("tuple", "set", "frozenset"):
            return {"tuple": tuple, "set": set, "frozenset": frozenset}[tag](decode(i, opaque) for i in body)
        if tag == "dict":
            return {decode(key, opaque): decode(item, opaque) for key, item in body}
        if tag in ("bytes", "bytearray"):
            raw = base64.b64decode(body, validate=True)
            return raw if tag == "bytes" else bytearray(raw)
        if tag == "complex":
            return complex(decode(body[0]), decode(body[1]))
        if tag == "subclass":
            return Foreign(str(body), decode(wire["of"]))
        if tag == "opaque":
            return Foreign(str(body))
    except (TypeError, KeyError, IndexError) as error:
        raise ValueError(f"wire: {tag}: expected what encode writes") from error
    if opaque is not None:
        return opaque(wire)
    raise ValueError(f"wire: tag = {tag!r}: expected one that encode writes")


# --- frames -----------------------------------------------------------------------------------------------


def write_all(fd: int, data: bytes) -> None:
    """Write everything, however long it takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read_exactly(fd: int, count: int) -> bytes:
    """That many bytes; EOFError when the other side is gone."""
    parts = []
    while count:
        part = os.read(fd, min(count, 1 << 16))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def frame(body: bytes) -> bytes:
    """Length and body."""
    return struct.pack(">I", len(body)) + body


def read_frame(fd: int, limit: int) -> bytes:
    """One body of at most `limit` bytes."""
    (length,) = struct.unpack(">I", read_exactly(fd, 4))
    if length > limit:
        raise Refused(f"a frame of {length} bytes; at most {limit} fit")
    return read_exactly(fd, length)


# --- inside the untrusted process -------------------------------------------------------------------------


def forbid_fork(program: bytes) -> None:
    """Install a compiled system call filter on this process, for good."""
    import ctypes

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    libc = ctypes.CDLL(None, use_errno=True)
    loaded = Program(len(program) // 8, program)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(
        22, 2, ctypes.byref(loaded), 0, 0
    ):  # NO_NEW_PRIVS, SET_SECCOMP
        raise OSError(ctypes.get_errno(), "seccomp")


def unreachable() -> None:
    """Keep children of the same user out of this process's memory and open files."""
    import ctypes

    if ctypes.CDLL(None).prctl(4, 0, 0, 0, 0):  # PR_SET_DUMPABLE
        raise OSError("prctl")


def apply_limits(limits: dict[str, Any], *, contained: bool) -> None:
    """Resource limits of one process, hard and soft."""
    seconds = int(limits["wall_s"]) + 2  # behind the clock's back: busy threads count several times
    many = limits["processes"] if limits["processes"] > 1 else limits["threads"]
    wanted = [
        (resource.RLIMIT_CPU, seconds * max(1, min(many, os.cpu_count() or 1))),
        (resource.RLIMIT_AS, limits["memory_bytes"]),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ]
    if contained:  # counts by user: outside of a namespace of its own it would count other people's processes
        wanted.append((resource.RLIMIT_NPROC, many + 3))
    for kind, value in wanted:
        _, hard = resource.getrlimit(kind)
        ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (ceiling, ceiling))


def leave(code: int) -> None:
    """End this process as an interpreter would: join threads, run exit handlers, flush."""
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        import atexit

        atexit._run_exitfuncs()
    except BaseException:
        code = code or 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            code = code or 120
    os._exit(code & 0xFF)


def exit_code(stop: SystemExit) -> int:
    """What `sys.exit(x)` means to a shell."""
    if stop.code is None or type(stop.code) is int:
        return stop.code or 0
    print(stop.code, file=sys.stderr)
    return 1


def fresh_module(name: str, file: str, work: str) -> types.ModuleType:
    """An empty module under that name, with the working directory on the path."""
    module = types.ModuleType(name)
    module.__dict__.update(__file__=file, __builtins__=__builtins__)
    sys.modules[name] = module
    sys.path.insert(0, work)
    sys.argv = [file]
    return module


def program_body(path: str, argv: list[str], work: str) -> Callable[[Callable[[bytes], None]], None]:
    """Run a Python file as a program."""

    def body(stage: Callable[[bytes], None]) -> None:
        with open(os.path.join(work, path), "rb") as handle:
            code = compile(handle.read(), path, "exec", dont_inherit=True)
        stage(b"C")
        module = fresh_module("__main__", path, work)
        sys.argv = [path, *argv]
        exec(code, module.__dict__)

    return body


def exec_body(argv: list[str]) -> Callable[[Callable[[bytes], None]], None]:
    """Become another program."""

    def body(stage: Callable[[bytes], None]) -> None:
        stage(b"C")
        os.execvpe(argv[0], argv, dict(os.environ))

    return body


class Objects:
    """Objects that stay here while their handles travel."""

    def __init__(self) -> None:
        self.by_id: dict[int, Any] = {}

    def keep(self, value: Any) -> dict[str, Any]:
        """Wire form of an object that is not plain data."""
        if isinstance(value, type) and issubclass(value, BaseException):
            return {"exception": lineage(value)}
        self.by_id[id(value)] = value
        return {"ref": id(value), "type": type(value).__name__[:80]}

    def find(self, wire: dict[str, Any]) -> Any:
        """The object behind a handle."""
        return self.by_id[wire["ref"]]


def lineage(kind: type) -> list[str]:
    """Names of an exception class and its bases, most special first."""
    return [f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__ if base is not object]


def resolve(module: types.ModuleType, name: str) -> Any:
    """`f`, or `Class.method` on a new instance."""
    first, _, rest = name.partition(".")
    target = getattr(module, first)
    if rest and isinstance(target, type):
        target = target()
    for part in rest.split(".") if rest else ():
        target = getattr(target, part)
    return target


def answer(module: types.ModuleType, objects: Objects, request: dict[str, Any]) -> Any:
    """Do what one call asks; the wire form of its result."""
    verb, remote = request["verb"], bool(request.get("remote"))
    find = objects.find if remote else None
    args = decode(request.get("args", []), find)
    kwargs = decode(request.get("kwargs", {"dict": []}), find)
    if not remote:
        return encode(resolve(module, request["name"])(*args, **kwargs))
    target: Any = module if request.get("on") is None else objects.by_id[request["on"]]
    if verb == "call":
        return encode(target(*args, **kwargs), objects.keep)
    if verb == "get":
        return encode(getattr(target, request["name"]), objects.keep)
    if verb == "set":
        setattr(target, request["name"], args[0])
        return None
    if verb == "list":
        return encode(list(target), objects.keep)
    if verb == "operator":
        import operator

        return encode(getattr(operator, request["name"])(target, *args), objects.keep)
    if verb == "builtin":
        kinds: dict[str, Callable[[Any], Any]] = {"len": len, "str": str, "int": int, "float": float}
        return encode(kinds[request["name"]](target))
    raise KeyError(verb)


def library_body(source: str, work: str, name: str, limit: int) -> Callable[[Callable[[bytes], None]], None]:
    """Load Python source as a module, then answer calls of its functions until the channel closes."""

    def body(stage: Callable[[bytes], None]) -> None:
        code = compile(source, f"{name}.py", "exec", dont_inherit=True)
        stage(b"C")
        module, objects = fresh_module(name, f"{name}.py", work), Objects()
        asking: list[str] = [""]

        def ask(question: Any) -> Any:
            write_all(CHANNEL, frame(json.dumps({"nonce": asking[0], "ask": question}).encode()))
            return json.loads(read_frame(CHANNEL, limit))["answer"]

        module.__dict__["__ask__"] = ask
        exec(code, module.__dict__)
        public = [key for key in module.__dict__ if not key.startswith("_")]
        write_all(CHANNEL, frame(json.dumps({"loaded": public}).encode()))
        while True:
            try:
                request = json.loads(read_frame(CHANNEL, limit))
            except EOFError:
                return
            asking[0] = nonce = request["nonce"]
            try:
                reply = {"nonce": nonce, "value": answer(module, objects, request)}
                raw = json.dumps(reply).encode()
            except BaseException as error:
                kind = type(error)
                reply = {"nonce": nonce, "error": lineage(kind), "message": said(error)}
                raw = json.dumps(reply).encode()
            write_all(CHANNEL, frame(raw))

    return body


def said(error: BaseException) -> str:
    """The message of an exception whose `__str__` may be anything."""
    try:
        return str(error)[:2000]
    except BaseException:
        return ""


# --- inside the guest -------------------------------------------------------------------------------------


class Child:
    """One untrusted process, its pipes, and what it has said so far."""

    def __init__(
        self,
        body: Callable[[Callable[[bytes], None]], None],
        limits: dict[str, Any],
        settings: dict[str, Any],
        stdin: bytes = b"",
    ) -> None:
        self.limits, self.settings = limits, settings
        self.started = time.monotonic()
        self.pending = memoryview(stdin)
        self.output = {
            "stdout": bytearray(),
            "stderr": bytearray(),
            "stage": bytearray(),
            "channel": bytearray(),
        }
        self.killed_for = ""
        self.status: int | None = None
        self.peak = 0
        in_read, in_write = os.pipe()
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        stage_read, stage_write = os.pipe()
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._become(body, in_read, out_write, err_write, theirs.detach(), stage_write)
        for fd in (in_read, out_write, err_write, stage_write):
            os.close(fd)
        theirs.close()
        self.channel = ours.detach()
        self.fds = {"stdout": out_read, "stderr": err_read, "stage": stage_read, "channel": self.channel}
        self.stdin: int | None = in_write
        self.exit = os.pidfd_open(self.pid)
        for fd in (*self.fds.values(), in_write):
            os.set_blocking(fd, False)

    def _become(self, body: Any, stdin: int, stdout: int, stderr: int, channel: int, stage: int) -> None:
        """In the child: shed everything that is the guest's, then run the body. Never returns."""
        try:
            os.setsid()
            stage = fcntl.fcntl(stage, fcntl.F_DUPFD_CLOEXEC, 100)
            for source, target in ((stdin, 0), (stdout, 1), (stderr, 2), (channel, CHANNEL)):
                os.dup2(source, target, inheritable=target != CHANNEL)
            os.closerange(CHANNEL + 1, stage)
            os.closerange(stage + 1, 4096)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            apply_limits(self.limits, contained=self.settings["contained"])
            if self.limits["processes"] <= 1 and self.settings["no_fork"]:
                forbid_fork(base64.b64decode(self.settings["no_fork"]))
            os.write(stage, b"S")
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}".encode())
            os._exit(70)
        code, compiled = 0, False

        def reached(mark: bytes) -> None:
            nonlocal compiled
            os.write(stage, mark)
            os.close(stage)
            compiled = True

        try:
            body(reached)
        except SystemExit as stop:
            code = exit_code(stop)
        except BaseException as error:
            code = 1
            try:
                sys.excepthook(type(error), error, error.__traceback__)
            except BaseException:
                os._exit(1)
        leave(code)

    def pump(self, deadline: float, done: Callable[["Child"], bool]) -> None:
        """Move bytes until the child has exited, `done` says so, or a limit is broken."""
        poller = select.poll()
        for fd in self.fds.values():
            poller.register(fd, select.POLLIN)
        poller.register(self.exit, select.POLLIN)
        if self.stdin is not None:
            poller.register(self.stdin, select.POLLOUT)
        names = {fd: name for name, fd in self.fds.items()}
        while self.status is None and not self.killed_for and not done(self):
            left = deadline - time.monotonic()
            if left <= 0:
                self.kill("timeout")
                break
            exited = False
            for fd, _ in poller.poll(left * 1000 + 1):
                if fd == self.exit:
                    exited = True
                elif fd == self.stdin:
                    self._feed(poller)
                elif not self._drain(names[fd]):
                    poller.unregister(fd)
            if exited:
                self.reap()

    def _feed(self, poller: "select.poll") -> None:
        assert self.stdin is not None
        try:
            self.pending = (
                self.pending[os.write(self.stdin, self.pending[: 1 << 16]) :]
                if self.pending
                else self.pending
            )
        except BlockingIOError:
            return
        except OSError:
            self.pending = memoryview(b"")
        if not self.pending:
            poller.unregister(self.stdin)
            os.close(self.stdin)
            self.stdin = None

    def _drain(self, name: str) -> bool:
        """Read what is there; whether more may come."""
        buffer, limit = self.output[name], self.limits["output_bytes"] + (64 if name == "channel" else 0)
        while True:
            try:
                part = os.read(self.fds[name], 1 << 16)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not part:
                return False
            buffer += part
            if len(buffer) > limit:
                del buffer[limit:]
                self.kill("output_limit")
                return False

    def kill(self, reason: str) -> None:
        """Kill it and say why."""
        self.killed_for = self.killed_for or reason
        self.reap(force=True)

    def reap(self, *, force: bool = False) -> None:
        """Collect the exit status and kill whatever the child started."""
        if self.status is not None:
            return
        if force:
            self._kill_tree()
        _, self.status, usage = os.wait4(self.pid, 0)
        self.peak = usage.ru_maxrss * 1024
        for name in self.fds:
            if not self.killed_for:
                self._drain(name)
        self._kill_tree()

    def _kill_tree(self) -> None:
        try:
            if self.settings["contained"]:
                os.kill(-1, signal.SIGKILL)  # everything in this process namespace but its init and ourselves
            else:
                os.killpg(self.pid, signal.SIGKILL)
        except OSError:
            pass

    def close(self) -> None:
        """Kill and forget."""
        self.reap(force=True)
        for fd in (*self.fds.values(), self.exit, *(() if self.stdin is None else (self.stdin,))):
            os.close(fd)

    def report(self) -> dict[str, Any]:
        """How it ended, or that it still runs."""
        stage, stderr = bytes(self.output["stage"]), bytes(self.output["stderr"])
        if self.status is not None and not stage and not self.killed_for:
            return {"broken": stderr[-500:].decode(errors="replace")}
        code = None if self.status is None else os.waitstatus_to_exitcode(self.status)
        if self.killed_for:
            outcome = self.killed_for
        elif code is None:
            outcome = "running"
        elif code == -signal.SIGXCPU:
            outcome = "timeout"
        elif (code and b"MemoryError" in stderr[-4000:]) or (
            code and self.peak > 0.9 * self.limits["memory_bytes"]
        ):
            outcome = "memory"
        elif b"C" not in stage:
            outcome = "compile_error"
        elif code < 0:
            outcome = "crashed"
        else:
            outcome = "exited"
        return {
            "outcome": outcome,
            "exit_code": code,
            "stdout": base64.b64encode(self.output["stdout"]).decode(),
            "stderr": base64.b64encode(stderr).decode(),
            "elapsed_s": time.monotonic() - self.started,
            "peak_memory_bytes": self.peak,
        }

    def take_frame(self) -> bytes | None:
        """The next whole reply of the child, if it is there."""
        buffer = self.output["channel"]
        if len(buffer) < 4:
            return None
        (length,) = struct.unpack(">I", buffer[:4])
        if length > self.limits["output_bytes"]:
            self.kill("output_limit")
            return None
        if len(buffer) < 4 + length:
            return None
        body = bytes(buffer[4 : 4 + length])
        del buffer[: 4 + length]
        return body


class Guest:
    """Answers the host's requests, one at a time."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings, self.work = settings, settings["work"]
        self.loaded: Child | None = None

    def write(self, request: dict[str, Any]) -> dict[str, Any]:
        """Put a file into the working directory."""
        path = os.path.join(self.work, request["path"])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as handle:
            handle.write(base64.b64decode(request["data"]))
        return {}

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a command, or a Python file in a fork of this interpreter, to its end."""
        argv, limits = request["argv"], request["limits"]
        warm = argv[0] == PYTHON and len(argv) > 1 and not argv[1].startswith("-")
        argv = [sys.executable if part == PYTHON else part for part in argv]
        body = program_body(argv[1], argv[2:], self.work) if warm else exec_body(argv)
        child = Child(body, limits, self.settings, base64.b64decode(request["stdin"]))
        child.pump(child.started + limits["wall_s"], lambda _: False)
        child.close()
        return child.report()

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Start a Python module whose functions are then called."""
        if self.loaded is not None:
            self.loaded.close()
        limits = request["limits"]
        body = library_body(request["source"], self.work, request["name"], request["frame_limit"])
        self.loaded = Child(body, limits, self.settings)
        return self._reply(limits)

    def call(self, request: dict[str, Any]) -> dict[str, Any]:
        """Pass one call, or one answer to its question, to the loaded module; whatever it says comes back."""
        child = self.loaded
        if child is None or child.status is not None:
            return {"outcome": "crashed", "exit_code": None}
        os.set_blocking(child.channel, True)
        with contextlib.suppress(OSError):  # gone: the reply will tell
            write_all(child.channel, frame(request["body"].encode()))
        os.set_blocking(child.channel, False)
        child.started = time.monotonic()
        return self._reply(request["limits"])

    def _reply(self, limits: dict[str, Any]) -> dict[str, Any]:
        child = self.loaded
        assert child is not None
        said: list[bytes] = []

        def replied(child: Child) -> bool:
            body = child.take_frame()
            if body is not None:
                said.append(body)
            return bool(said)

        child.pump(child.started + limits["wall_s"], replied)
        if not said and not child.killed_for:
            replied(child)  # it may have spoken and exited in one breath
        if said:
            return {"said": base64.b64encode(said[0]).decode(), "elapsed_s": time.monotonic() - child.started}
        return child.report()


def main() -> None:
    """Serve requests from standard input until it closes."""
    settings = json.loads(sys.argv[1])
    sys.argv = [""]
    requests, replies = os.dup(0), os.dup(1)
    uid = settings["uid"]
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    os.umask(0o077)
    os.chdir(settings["work"])
    sys.path[:] = [*settings["python_path"], *(entry for entry in sys.path if entry)]
    for name in (*settings["preload"], *(["ctypes"] if settings["no_fork"] else [])):
        __import__(name)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    if settings["contained"]:
        unreachable()
    guest = Guest(settings)
    verbs: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "write": guest.write,
        "run": guest.run,
        "load": guest.load,
        "call": guest.call,
    }
    write_all(replies, frame(b'{"ready": true}'))
    while True:
        try:
            request = json.loads(read_frame(requests, settings["frame_limit"]))
        except EOFError:
            return
        try:
            reply = verbs[request["verb"]](request)
        except OSError as error:
            reply = {"broken": f"{errno.errorcode.get(error.errno or 0, '?')}: {error.strerror}"}
        write_all(replies, frame(json.dumps(reply).encode()))


if __name__ == "__main__":
    main()
