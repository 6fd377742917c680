"""Sandboxes made by bubblewrap: own namespaces, a read-only system, no network, no capabilities."""

import base64
import functools
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from peira.errors import SandboxError
from peira.sandbox import guest, seccomp
from peira.sandbox.pool import pool_of
from peira.sandbox.protocol import MIB, Execution, Limits
from peira.sandbox.session import FRAME_BYTES, Guest, Session, run_once

WORK = "/sandbox"
NOBODY = 65534
INSTALL = "apt-get install bubblewrap (or dnf, pacman, apk: the package has the same name)"


@dataclass(frozen=True, slots=True, kw_only=True)
class BubblewrapSandbox:
    """Fresh bubblewrap sandboxes, a few of them started ahead of need.

    Inside there are: the system's `/usr` and the interpreter, read-only; an empty working directory and
    `/tmp` in memory; a private `/proc` and `/dev`; no network, no environment, no capabilities, a user of its
    own, a process namespace that dies as a whole. Nothing in it can be written that the host ever reads back
    but the reply pipe.

    Example:
        >>> box = BubblewrapSandbox(limits=Limits(wall_s=2))
        >>> box.run(["/bin/echo", "hello"]).stdout  # doctest: +SKIP
        b'hello\\n'
    """

    limits: Limits = field(default_factory=Limits)
    python: str = field(default_factory=lambda: base_interpreter())
    """The interpreter inside; its installation is mounted read-only."""
    readable: tuple[str, ...] = ()
    """Further files and folders of the host to show, read-only, under the same path."""
    python_path: tuple[str, ...] = ()
    """Put before the interpreter's own path; must be readable."""
    preload: tuple[str, ...] = ()
    """Modules the interpreter imports before it waits, so that programs get them for nothing."""
    tmp_bytes: int = 64 * MIB
    """Size of the working directory, and of `/tmp` and `/dev/shm` each."""
    warm: int = 1
    """How many sandboxes wait, started, for their program. 0 starts each when it is needed."""

    def session(self) -> Session:
        """A fresh sandbox.

        Raises:
            SandboxError: bubblewrap or libseccomp is missing, or the kernel refuses namespaces.
        """
        return Session(pool_of(self, self._spawn, self.warm).take(), self.limits)

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        files: Mapping[str, bytes] | None = None,
        limits: Limits | None = None,
    ) -> Execution:
        """Run one command in a fresh sandbox that holds these files."""
        return run_once(self.session(), argv, stdin=stdin, files=files, limits=limits)

    def _spawn(self) -> Guest:
        settings = {
            "uid": 1_000_000_000 + secrets.randbelow(1_000_000_000) if keeps_root() else None,
            "contained": True,
            "work": WORK,
            "python_path": list(self.python_path),
            "preload": list(self.preload),
            "frame_limit": FRAME_BYTES,
            "no_fork": base64.b64encode(seccomp.no_fork()).decode(),
        }
        command = [self.python, "-I", "-S", "-B", "-X", "utf8", "/guest.py", json.dumps(settings)]
        with tempfile.TemporaryFile() as file:
            file.write(seccomp.everything())
            file.seek(0)
            argv = [*self._bubblewrap(file.fileno()), *command]
            return Guest(argv, contained=True, pass_fds=(file.fileno(),))

    def _bubblewrap(self, filter_fd: int) -> list[str]:
        argv = [executable(), *isolation(), "--seccomp", str(filter_fd), "--hostname", "sandbox"]
        for folder in ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32"):
            if os.path.islink(folder):
                argv += ["--symlink", os.readlink(folder), folder]
            elif os.path.isdir(folder):
                argv += ["--ro-bind", folder, folder]
        size = str(self.tmp_bytes)
        argv += ["--ro-bind", guest.__file__, "/guest.py", "--proc", "/proc", "--dev", "/dev"]
        for folder in (WORK, "/tmp", "/dev/shm"):
            argv += ["--size", size, "--perms", "1777", "--tmpfs", folder]
        prefix = str(Path(self.python).resolve().parents[1])
        shown = [path for path in (prefix, *self.readable) if not _below(path, "/usr")]
        for path in ("/etc/ld.so.cache", "/etc/alternatives", *shown):
            for parent in reversed(Path(path).parents[:-1]):
                argv += ["--perms", "0755", "--dir", str(parent)]
            argv += ["--ro-bind-try", path, path]
        argv += ["--remount-ro", "/dev", "--remount-ro", "/", "--clearenv"]
        variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": WORK, "LANG": "C.UTF-8", "TZ": "UTC"}
        threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        for name, value in (variables | dict.fromkeys(threads, "1")).items():
            argv += ["--setenv", name, value]
        return [*argv, "--chdir", WORK, "--"]


def base_interpreter() -> str:
    """The interpreter under any virtual environment: what an empty Python is here."""
    return str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())


def executable() -> str:
    """Where bubblewrap is.

    Raises:
        SandboxError: it is not installed.
    """
    found = shutil.which("bwrap")
    if found is None:
        raise SandboxError(f"sandbox: bwrap: expected bubblewrap on the PATH; {INSTALL}")
    return found


@functools.cache
def keeps_root() -> bool:
    """Whether root makes the namespaces itself and each sandbox gets a user id of its own.

    The kernel exempts root's own user id from process limits, user namespace or not; a real other id is
    better.
    """
    return os.geteuid() == 0 and "cap_sys_admin" in _capabilities()


def _capabilities() -> set[str]:
    """Which of the capabilities that matter here this process holds."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            bits = int(line.split()[1], 16)
            return {name for name, bit in (("cap_sys_admin", 21), ("cap_setuid", 7)) if bits >> bit & 1}
    return set()


def isolation() -> list[str]:
    """Which namespaces, and how a sandbox gets rid of its privileges, on this machine."""
    common = ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    spaces = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    if keeps_root():  # the guest changes to its own user id first of all, which takes these two away again
        return [*spaces, *common, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return [*spaces, "--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY), *common]


def _below(path: str, folder: str) -> bool:
    return Path(path).is_relative_to(folder)
