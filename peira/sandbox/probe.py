"""What this machine can isolate: measured by trying, so that a run can be refused before it starts."""

import sys
import time
from dataclasses import dataclass, field, replace

from peira.errors import SandboxError
from peira.sandbox.bubblewrap import BubblewrapSandbox, keeps_root
from peira.sandbox.protocol import Limits, Outcome, Sandbox
from peira.sandbox.unsafe import UnsafeProcessSandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What was tried in a real sandbox, and whether it held."""

    works: bool
    """Every check held: untrusted programs can run here."""
    checks: dict[str, bool] = field(default_factory=dict)
    """By name; true is safe."""
    user: str = ""
    """How privileges are given up: `own user id` or `user namespace`."""
    start_s: float = 0.0
    """Seconds from nothing to the first result of a program."""
    detail: str = ""
    """Why it does not work, and the way out."""


ESCAPES = {
    "no network": "import socket\ns = socket.socket(); s.settimeout(1); s.connect(('1.1.1.1', 53))",
    "no hypervisor sockets": "import socket\nsocket.socket(40, socket.SOCK_STREAM)",
    "no fork": "import os\nos.fork() or os._exit(0)",
    "read-only system": "open('/usr/peira-probe', 'w')",
    "no home folders": "import os\nos.listdir('/home')",
    "no capabilities": (
        "s = open('/proc/self/status').read()\n"
        "assert int(s.split('CapEff:')[1].split()[0], 16) or int(s.split('CapPrm:')[1].split()[0], 16)"
    ),
    "not root": "import os\nassert 0 in (*os.getresuid(), *os.getresgid())",
    "own processes only": "import os\nassert sum(name.isdigit() for name in os.listdir('/proc')) > 4",
    "empty environment": (
        "import os\nassert set(os.environ) - {'PATH', 'HOME', 'LANG', 'TZ', 'PWD', 'OMP_NUM_THREADS', "
        "'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS'}"
    ),
    "no new namespaces": "import ctypes\nassert ctypes.CDLL(None).unshare(0x10000000) == 0",
    "bounded disk": "open('/tmp/x', 'wb').write(b'x' * 2**24); open('/tmp/y', 'wb').write(b'x' * 2**24)",
    "bounded memory": "bytearray(2**30)",
    "no inherited files": (
        "import os, fcntl\n"
        "def there(n):\n"
        "    try: return fcntl.fcntl(n, fcntl.F_GETFD) >= 0\n"
        "    except OSError: return False\n"
        "assert [n for n in range(4, 4096) if there(n)]"
    ),
    "no way into its parent's memory": "import os\nopen(f'/proc/{os.getppid()}/mem', 'r+b')",
    "no way to its parent's files": "import os\nassert os.listdir(f'/proc/{os.getppid()}/fd')",
    "no way to its parent's limits": (
        "import os, resource\nresource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (9, 9))"
    ),
}
"""Short programs that exit with 0 when they get through."""


def probe() -> Probe:
    """Start a sandbox and try to break out of it in each of a dozen ways."""
    box = BubblewrapSandbox(limits=Limits(wall_s=5, memory_bytes=2**28), tmp_bytes=2**24, warm=0)
    start = time.monotonic()
    try:
        hello = box.run(["{python}", "p.py"], files={"p.py": b"print(6 * 7)"})
        start_s = time.monotonic() - start
        if hello.stdout != b"42\n":
            return Probe(works=False, detail=f"sandbox: expected a program to print 42, got {hello!r}")
        checks = {}
        with box.session() as session:
            for name, source in ESCAPES.items():
                session.write("p.py", source.encode())
                run = session.run(["{python}", "p.py"])
                checks[name] = run.outcome is not Outcome.COMPILE_ERROR and not run.ok
    except SandboxError as error:
        return Probe(works=False, detail=str(error))
    failed = [name for name, held in checks.items() if not held]
    return Probe(
        works=not failed,
        checks=checks,
        user="own user id" if keeps_root() else "user namespace",
        start_s=start_s,
        detail=f"sandbox: {', '.join(failed)}: expected to hold" if failed else "",
    )


def open_sandbox(
    *,
    limits: Limits | None = None,
    allow_unsafe: bool = False,
    warm: int = 1,
    readable: tuple[str, ...] = (),
    python_path: tuple[str, ...] = (),
    preload: tuple[str, ...] = (),
) -> Sandbox:
    """A bubblewrap sandbox, tried once; without one, and only when allowed, the unsafe one.

    Raises:
        SandboxError: no isolation here, and `allow_unsafe` is off.
    """
    limits = limits or Limits()
    box = BubblewrapSandbox(
        limits=limits, warm=warm, readable=readable, python_path=python_path, preload=preload
    )
    try:
        replace(box, warm=0).run(["{python}", "p.py"], files={"p.py": b""})
        return box
    except SandboxError as error:
        if allow_unsafe:
            return UnsafeProcessSandbox(
                limits=limits, warm=warm, python=sys.executable, python_path=python_path, preload=preload
            )
        raise SandboxError(
            f"{error}; a container must allow namespaces (docker run --security-opt seccomp=unconfined). "
            "allow_unsafe: true runs programs without isolation, on a machine that may be lost"
        ) from error
