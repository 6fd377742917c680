"""Programming languages: how source becomes something that runs. The seam that C keeps honest."""

from dataclasses import dataclass, replace
from typing import Protocol

from peira.errors import VerifierError
from peira.sandbox.protocol import Execution, Limits, Outcome
from peira.sandbox.session import PYTHON, Session


class Language(Protocol):
    """One language in one sandbox."""

    @property
    def labels(self) -> tuple[str, ...]:
        """How its code blocks are labelled."""
        ...

    @property
    def can_call(self) -> bool:
        """Whether functions can be called one by one; otherwise only whole programs run."""
        ...

    def build(self, session: Session, source: str, limits: Limits) -> Execution | None:
        """Put the program into the sandbox; what went wrong, or None."""
        ...

    def command(self) -> tuple[str, ...]:
        """What runs the built program."""
        ...


@dataclass(frozen=True, slots=True)
class Python:
    """Python in the interpreter that is already up: each run is a fork of it."""

    labels: tuple[str, ...] = ("python", "py", "python3")
    can_call: bool = True

    def build(self, session: Session, source: str, limits: Limits) -> Execution | None:
        """Nothing to build; syntax is found when it runs."""
        session.write("main.py", source.encode("utf-8", errors="replace"))
        return None

    def command(self) -> tuple[str, ...]:
        """The warm interpreter on the file."""
        return (PYTHON, "main.py")


@dataclass(frozen=True, slots=True)
class C:
    """C by gcc, compiled inside the sandbox that runs it."""

    labels: tuple[str, ...] = ("c",)
    can_call: bool = False

    def build(self, session: Session, source: str, limits: Limits) -> Execution | None:
        """Compile and link."""
        session.write("main.c", source.encode("utf-8", errors="replace"))
        compiler = replace(limits, processes=16, memory_bytes=2 * 1024**3)
        command = ("/usr/bin/gcc", "-std=c11", "-O2", "-w", "-o", "main", "main.c", "-lm")
        built = session.run(command, limits=compiler)
        if built.exit_code == 127 or (built.exit_code == 1 and b"FileNotFoundError" in built.stderr):
            raise VerifierError("code: language = 'c': expected gcc; apt-get install gcc libc6-dev")
        if built.ok:
            return None
        failed = Outcome.COMPILE_ERROR if built.outcome is Outcome.EXITED else built.outcome
        return replace(built, outcome=failed)

    def command(self) -> tuple[str, ...]:
        """The binary."""
        return ("./main",)


LANGUAGES: dict[str, Language] = {"python": Python(), "c": C()}
