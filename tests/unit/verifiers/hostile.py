"""Verifiers that misbehave, by name: what the pool must survive."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict

leak: list[bytearray] = []


@dataclass(frozen=True)
class Obedient:
    """Does what the attempt's text says; the score is the task's answer."""

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        action, _, argument = attempt.text.partition(" ")
        match action:
            case "score":
                return Verdict(score=float(argument))
            case "raise":
                raise RuntimeError("by request")
            case "exit":
                raise SystemExit(0)
            case "base":
                raise BaseException("not an Exception")
            case "hang":
                while True:
                    pass
            case "hang_in_c":
                for number in range(1, 32):
                    if number not in (signal.SIGKILL, signal.SIGSTOP):
                        signal.signal(number, signal.SIG_IGN)
                ctypes.PyDLL(None).sleep(600)  # PyDLL keeps the interpreter's lock
            case "nan":
                return Verdict(score=float("nan"))
            case "two":
                return Verdict(score=2.0)
            case "bare":
                return 1.0  # type: ignore[return-value]
            case "none":
                return None  # type: ignore[return-value]
            case "forged":
                verdict = Verdict(score=1.0)
                object.__setattr__(verdict, "score", float("nan"))
                return verdict
            case "huge":
                return Verdict(score=1.0, detail="x" * 50_000_000)
            case "os_exit":
                os._exit(3)
            case "suicide":
                os.kill(os.getpid(), signal.SIGKILL)
            case "segfault":
                ctypes.string_at(0)
            case "print":
                for _ in range(200):
                    os.write(1, b"x" * 100_000)
                    os.write(2, b"y" * 100_000)
                print("z" * 5_000_000, file=sys.stderr)
            case "leak":
                leak.append(bytearray(int(argument)))
            case "memory":
                bytearray(8 * 1024**3)
            case "fork_and_return":
                os.fork()
            case "fork_and_hang":
                if os.fork() == 0:
                    os.setsid()
                    if os.fork() == 0:
                        Path(argument).write_text(str(os.getpid()))
                        time.sleep(600)
                time.sleep(600)
            case "fork_and_die":
                if os.fork() == 0:
                    Path(argument).write_text(str(os.getpid()))
                    time.sleep(600)
                time.sleep(0.2)
                os._exit(1)
            case "child":
                subprocess.Popen(["sleep", "600"])
                time.sleep(600)
            case "late_bomb":
                threading.Timer(0.2, os._exit, (9,)).start()
            case "note":
                Path(argument).write_text(str(os.getpid()))
            case "sleep":
                time.sleep(float(argument))
        return Verdict(score=1.0, detail=action)


@dataclass(frozen=True)
class Unloadable:
    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        return Verdict(score=1.0)

    def prepare(self) -> None:
        raise ImportError("no such library")


@dataclass(frozen=True)
class SlowToLoad(Obedient):
    def prepare(self) -> None:
        time.sleep(3.0)


@dataclass(frozen=True)
class FailsToLoad(Obedient):
    """Ends or hangs its worker while it is being loaded, and notes each try."""

    way: str = "die"
    notes: str = ""

    def prepare(self) -> None:
        with open(self.notes, "a") as file:
            file.write("try\n")
        if self.way == "die":
            os._exit(5)
        time.sleep(600)


@dataclass(frozen=True)
class Imported:
    """Names those of the given modules that the worker has loaded."""

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        return Verdict(
            score=1.0, detail=" ".join(m for m in attempt.text.split() if m in sys.modules) or "none"
        )
