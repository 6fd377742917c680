r"""Judges a Lean 4 proof.

    trusted theorem -- place 0 --> Problem.olean                              (once per theorem and process)
    completion ------- screen; REPL says early that it fails (optional)
    completion ------- place 1 --> compile after `import Problem` --> Submission.olean
    both .olean ------ place 2 --> checker.lean reads the environment: kind, type, axioms and their modules;
                                   a replay through the kernel (optional)

Each place is a fresh sandbox. Nothing is concluded from text that the submission could have printed or from
syntax that it could have changed.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Literal

from peira.errors import SandboxError, VerifierError
from peira.sandbox.protocol import MIB, Execution, Limits, Outcome, Sandbox
from peira.sandbox.session import Session
from peira.types.rollout import StopReason
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict, VerdictStatus
from peira.verifiers.clock import limited
from peira.verifiers.proof.coq import failed_check, failed_proof, proof_script, rejected
from peira.verifiers.proof.lean_source import declares, refusal, without_imports
from peira.verifiers.proof.repl import POOL, ReplGone, ReplSettings, problems
from peira.verifiers.proof.theorem import Theorem

LABELS = ("lean", "lean4")
INSTALL = "install elan and a toolchain, https://lean-lang.org/install"
STANDARD_AXIOMS = ("propext", "Classical.choice", "Quot.sound")
_OLEAN_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class LeanInstallation:
    """Where Lean and the libraries are, found once on the host."""

    lean: str
    """The compiler itself, not a version manager's stand-in for it."""
    path: tuple[str, ...] = ()
    """Folders of compiled libraries, for LEAN_PATH."""
    prefix: str = ""
    """The toolchain's folder; a sandbox must show it."""

    @classmethod
    def find(cls, lean: str = "lean", project: str | None = None) -> "LeanInstallation":
        """Ask `lean` for its toolchain and, for a project with libraries such as Mathlib, `lake` for paths.

        Raises:
            VerifierError: no Lean, or a project that lake cannot read.
        """
        if shutil.which(lean) is None:
            raise VerifierError(f"lean: {lean}: expected Lean 4 on the PATH; {INSTALL}")
        prefix = _output([lean, "--print-prefix"], project)
        path = (
            ()
            if project is None
            else tuple(_output(["lake", "env", "printenv", "LEAN_PATH"], project).split(":"))
        )
        return cls(lean=os.path.join(prefix, "bin", "lean"), path=path, prefix=prefix)

    @property
    def readable(self) -> tuple[str, ...]:
        """What a sandbox must show."""
        return tuple(folder for folder in (self.prefix, *self.path) if folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeanVerifier:
    """Right when the completion's last code block proves the theorem in `task.info["theorem"]`.

    The block is a whole file that proves a theorem of that name, or just a proof (`by ...` or a term), which
    is then put behind the trusted statement. Import lines of the block are left out; the task says what is
    there.
    A proof that fails, cheats or computes too long scores 0 and `detail` starts with the reason (`refused`,
    `compile`, `statement`, `axioms`, `kernel`, `timeout`, `memory`). When our own checks do not end in time,
    or a busy machine lets nothing end, it is unjudged.

    What it does not stop: see docs/verifiers/lean.md. In particular, with trust "environment" a declaration
    that was added to the environment without a check by the kernel, and with either level a compiled file
    whose memory was tampered with.
    """

    sandbox: Sandbox
    """Where Lean runs; it must show `installation.readable`."""
    installation: LeanInstallation
    trust: Literal["environment", "replay"] = "environment"
    """environment: kind, type and axioms are read from the environment; replay: and every declaration of the
    submission goes through the kernel again, by `replay`."""
    replay: str = "lean4checker"
    """Program that replays a compiled module: lean4checker, or leanchecker of newer toolchains."""
    repl: str | None = None
    """The REPL's executable, to sort out failing proofs without loading the libraries each time."""
    axioms: tuple[str, ...] = STANDARD_AXIOMS
    """Axioms of the libraries that a proof may rest on, besides those of the task's own definitions."""
    permitted: tuple[str, ...] = ()
    """Words let through the screen."""
    cpu_s: float = 60.0
    """Processor seconds, of all threads, for compiling the proof, and again for each check."""
    wall_s: float = 300.0
    """Seconds for the whole attempt, or for loading the libraries into a REPL; what they end is unjudged."""
    memory_bytes: int = 8 * 1024 * MIB

    def prepare(self) -> None:
        """Find the programs before the clock runs."""
        for program in (
            self.installation.lean,
            *([self.replay] if self.trust == "replay" else []),
            *([self.repl] if self.repl else []),
        ):
            if shutil.which(program) is None:
                raise VerifierError(f"lean: {program}: expected it to be there; {INSTALL}")

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge one attempt.

        Raises:
            VerifierError: no Lean, no sandbox, or a theorem that does not compile.
        """
        theorem = Theorem.of(task)
        self.prepare()
        script = proof_script(attempt, LABELS)
        if script is None:
            cut = attempt.stop_reason in (StopReason.LENGTH, StopReason.ABORT)
            status = VerdictStatus.TRUNCATED if cut else VerdictStatus.UNPARSEABLE
            return Verdict(score=0.0, status=status, detail="no proof was found")
        reason = refusal(script, self.permitted)
        if reason is not None:
            return rejected("refused", reason)
        body = _submission(theorem, script)
        try:
            problem = _compiled(self, theorem)
            early = self._early(theorem, body)
            return early or self._judge(theorem, body, problem)
        except SandboxError as error:
            raise VerifierError(f"lean: the sandbox broke, the proof is unjudged: {error}") from error
        except _Broken as error:
            raise VerifierError(f"task {task.id!r}: info.theorem: does not compile: {error}") from error

    def _early(self, theorem: Theorem, body: str) -> Verdict | None:
        """What the REPL can say at once: that the proof fails. It is never believed that one is right."""
        if self.repl is None:
            return None
        settings = ReplSettings(
            sandbox=self.sandbox,
            argv=(self.repl,),
            variables=(("LEAN_PATH", ":".join(self.installation.path)),),
            memory_bytes=self.memory_bytes,
        )
        header = f"{theorem.imports}\n{theorem.definitions}\n"
        try:
            reply = POOL.ask(settings, header, body, start_s=self.wall_s, wall_s=self.wall_s)
        except ReplGone:
            return None  # a crash says nothing of the proof: the compiler decides
        problem = problems(reply)
        return rejected("compile", problem) if problem else None

    def _judge(self, theorem: Theorem, body: str, problem: bytes) -> Verdict:
        deadline = time.monotonic() + self.wall_s
        source = f"{theorem.imports}\nimport Problem\n{_opened(theorem)}{body}\n"
        given = {"Problem.olean": problem, "Submission.lean": source.encode(errors="replace")}
        with self._place(given) as session:
            run = self._lean(session, ["-o", "Submission.olean", "Submission.lean"], deadline)
            if not run.ok:
                return failed_proof(run, _message(run))
            submission = self._read(session, "Submission.olean")
        if submission is None:
            return rejected("compile", "no compiled file of an acceptable size")
        given = {"Problem.olean": problem, "Submission.olean": submission, "checker.lean": _checker()}
        with self._place(given) as session:
            run = self._lean(session, ["--run", "checker.lean", theorem.name], deadline)
            if run.outcome is not Outcome.EXITED:
                return failed_check("statement", run, _message(run))
            try:
                seen = json.loads(run.stdout.decode().strip()) if run.ok else None
            except ValueError:
                seen = None
            if not isinstance(seen, dict):
                raise VerifierError(f"lean: checker.lean: expected one line of JSON: {_message(run)}")
            verdict = self._seen(theorem, seen)
            if verdict.score == 1.0 and self.trust == "replay":
                argv = limited([*self._environment(), self.replay, "Submission"], self.cpu_s)
                run = session.run(argv, limits=self._limits(deadline))
                if not run.ok:
                    return failed_check("kernel", run, _message(run))
        return verdict

    def _seen(self, theorem: Theorem, seen: Mapping[str, Any]) -> Verdict:
        if seen.get("kind") != "theorem" or seen.get("module") != "Submission" or seen.get("unsafe"):
            return rejected("statement", f"{theorem.name} is {seen.get('kind')}: expected a theorem")
        if seen.get("same") is not True:
            return rejected("statement", f"{theorem.name} states something else")
        used = [(str(name), str(module)) for name, module in seen["axioms"]]
        for name, module in used:
            if module == "Submission" or (module != "Problem" and name not in self.axioms):
                return rejected("axioms", f"rests on {name} of {module}")
        names = ", ".join(name for name, _ in used)
        return Verdict(score=1.0, detail="proved" + (f", with {names}" if names else ""))

    def _place(self, given: Mapping[str, bytes]) -> Session:
        session = self.sandbox.session()
        opened = session.__enter__()
        try:
            for name, data in given.items():
                opened.write(name, data)
        except BaseException:
            opened.__exit__(None, None, None)
            raise
        return opened

    def _environment(self) -> list[str]:
        return ["/usr/bin/env", f"LEAN_PATH={':'.join(('.', *self.installation.path))}"]

    def _lean(self, session: Session, argv: list[str], deadline: float) -> Execution:
        command = limited([*self._environment(), self.installation.lean, *argv], self.cpu_s)
        return session.run(command, limits=self._limits(deadline))

    def _read(self, session: Session, name: str) -> bytes | None:
        run = session.run(["/bin/cat", name], limits=Limits(output_bytes=_OLEAN_BYTES))
        return run.stdout if run.ok and run.stdout else None

    def _limits(self, deadline: float) -> Limits:
        return Limits(
            wall_s=max(1.0, deadline - time.monotonic()),
            memory_bytes=self.memory_bytes,
            file_bytes=_OLEAN_BYTES,
            threads=256,
            open_files=4096,
        )


class _Broken(Exception):
    """The trusted part does not compile."""


@lru_cache(maxsize=64)
def _compiled(verifier: LeanVerifier, theorem: Theorem) -> bytes:
    source = (
        f"{theorem.imports}\n{theorem.definitions}\ndef trusted_statement : Prop := {theorem.statement}\n"
    )
    with verifier._place({"Problem.lean": source.encode()}) as session:
        deadline = time.monotonic() + verifier.wall_s
        run = verifier._lean(session, ["-o", "Problem.olean", "Problem.lean"], deadline)
        compiled = verifier._read(session, "Problem.olean") if run.ok else None
    if compiled is None:
        raise _Broken(_message(run))
    return compiled


def _opened(theorem: Theorem) -> str:
    """`open` lines of the definitions, which do not travel with an import."""
    lines = theorem.definitions.splitlines()
    return "".join(f"{line}\n" for line in lines if line.startswith(("open ", "set_option ", "universe ")))


def _submission(theorem: Theorem, script: str) -> str:
    script = without_imports(script)
    if declares(script, theorem.name):
        return script
    proof = script.strip().removeprefix(":=").strip()
    return f"theorem {theorem.name} : {theorem.statement} := {proof}"


def _message(run: Execution) -> str:
    said = (run.stdout + run.stderr).decode(errors="replace")
    _, found, rest = said.partition("error:")
    return " ".join((rest if found else said or run.outcome.value).split())[:300]


def _output(argv: list[str], folder: str | None) -> str:
    try:
        run = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=120, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise VerifierError(f"lean: {' '.join(argv)}: {error}; {INSTALL}") from error
    return run.stdout.strip()


@cache
def _checker() -> bytes:
    return (files("peira") / "verifiers/proof/checker.lean").read_bytes()
