r"""Judges a Rocq (Coq) proof.

    trusted theorem -- place 0 --> Problem.vo                                (once per theorem and process)
    completion ------- place 1 --> screen, compile after `Require Import Problem` --> Submission.vo
    both .vo --------- place 2 --> Definition check : Problem.<statement> := Submission.<name>.
                                   Print Assumptions check.    coqchk

Each place is a fresh sandbox. The statement is compiled before and apart from anything the policy wrote, so
notations, scopes, modules and definitions of the submission cannot change what is proved; the last place runs
no sentence of the submission.
"""

import re
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from peira.errors import SandboxError, VerifierError
from peira.sandbox.protocol import MIB, Execution, Limits, Outcome, Sandbox
from peira.sandbox.session import Session
from peira.types.rollout import StopReason
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict, VerdictStatus
from peira.verifiers.answer import strip_thinking
from peira.verifiers.clock import computed_too_long, limited, waited_too_long
from peira.verifiers.code.extract import MAX_CHARACTERS, code_blocks, extract_code
from peira.verifiers.proof.theorem import Theorem
from peira.verifiers.proof.vernacular import declares, is_command, refusal, sentences

LABELS = ("coq", "rocq", "gallina", "v")
READABLE = ("/etc/ocamlfind.conf",)
"""What Rocq reads outside its own installation; a sandbox must show it."""
INSTALL = "apt-get install coq, or opam install rocq-prover"
STANDARD_AXIOMS = (
    "Coq.Logic.Classical_Prop.classic",
    "Coq.Logic.FunctionalExtensionality.functional_extensionality_dep",
    "Coq.Logic.PropExtensionality.propositional_extensionality",
    "Coq.Logic.ProofIrrelevance.proof_irrelevance",
    "Coq.Logic.Eqdep.Eq_rect_eq.eq_rect_eq",
    "Coq.Reals.ClassicalDedekindReals.sig_forall_dec",
    "Coq.Reals.ClassicalDedekindReals.sig_not_dec",
)
"""Known to be consistent together; the reals of the standard library rest on some of them."""
_STATEMENT = "trusted_statement"
_MODULES = ("Check", "Submission", "Problem")
_ENDS = ("Qed", "Defined", "Save", "Admitted", "Abort")
_VO_BYTES = 16 * MIB
_AXIOM = re.compile(r"([^\W\d][\w'.]*)(?: :.*)?")
_ROOTS = re.compile(r"^(?:Stdlib|Corelib)\.")  # later versions renamed the root of the standard library


@dataclass(frozen=True, slots=True, kw_only=True)
class CoqVerifier:
    """Right when the completion's last code block proves the theorem in `task.info["theorem"]`.

    The block is either a whole file that proves a statement of the theorem's name, or just a proof, which is
    then put behind the trusted statement. A proof that fails, cheats or computes too long scores 0 and
    `detail` starts with the reason (`refused`, `compile`, `statement`, `axioms`, `kernel`, `timeout`,
    `memory`). When our own checks do not end in time, or a busy machine lets nothing end, it is unjudged.

    What it does not stop: a flaw in Rocq's kernel that coqchk shares, and a task whose statement says
    something else than was meant.
    """

    sandbox: Sandbox
    """Where Rocq runs; it must show the files in `READABLE` and the installation."""
    coqc: str = "coqc"
    coqchk: str = "coqchk"
    axioms: tuple[str, ...] = STANDARD_AXIOMS
    """Full names of the axioms that a proof may rest on, besides those of the task's own definitions."""
    recheck: bool = True
    """Run the separate checker on every proof that got so far; half of the cost of a right proof."""
    permitted: tuple[str, ...] = ()
    """Commands and attributes let through the screen besides the usual ones."""
    cpu_s: float = 20.0
    """Processor seconds for compiling the proof, and again for each check."""
    wall_s: float = 120.0
    """Seconds for the whole attempt; what they end is unjudged."""
    memory_bytes: int = 3 * 1024 * MIB

    def prepare(self) -> None:
        """Find the programs before the clock runs."""
        _found(self.coqc)
        _found(self.coqchk)

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge one attempt.

        Raises:
            VerifierError: no Rocq, no sandbox, or a theorem that does not compile.
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
        try:
            root, problem = _compiled(self, theorem)
            return self._judge(theorem, script, root, problem)
        except SandboxError as error:
            raise VerifierError(f"coq: the sandbox broke, the proof is unjudged: {error}") from error
        except _Broken as error:
            raise VerifierError(f"task {task.id!r}: info.theorem: does not compile: {error}") from error

    def _judge(self, theorem: Theorem, script: str, root: str, problem: bytes) -> Verdict:
        deadline = time.monotonic() + self.wall_s
        source = _submission(theorem, script, root).encode(errors="replace")
        files = {"Problem.vo": problem, "Submission.v": source}
        with self._place(files) as session:
            run = self._compile(session, root, "Submission.v", deadline)
            if not run.ok:
                return failed_proof(run, _message(run))
            submission = self._read(session, "Submission.vo")
        if submission is None:
            return rejected("compile", "no compiled file of an acceptable size")
        check = (
            f"Require {root}.Problem. Require {root}.Submission.\n"
            f"Definition check : {root}.Problem.{_STATEMENT} := {root}.Submission.{theorem.name}.\n"
            "Print Assumptions check.\n"
        )
        files = {"Problem.vo": problem, "Submission.vo": submission, "Check.v": check.encode()}
        with self._place(files) as session:
            run = self._compile(session, root, "Check.v", deadline)
            if not run.ok:
                return failed_check("statement", run, _message(run))
            used = _assumptions(run.stdout.decode(errors="replace"))
            if isinstance(used, str):
                return rejected("axioms", used)
            if not (self.recheck or used):
                return Verdict(score=1.0, detail="proved")
            norec = [word for name in _MODULES for word in ("-norec", f"{root}.{name}")]
            argv = [_found(self.coqchk), "-o", "-Q", ".", root, *norec]
            run = session.run(limited(argv, self.cpu_s), limits=self._limits(deadline))
        if not run.ok:
            return failed_check("kernel", run, _message(run))
        return self._summary(used, (run.stderr + b"\n" + run.stdout).decode(errors="replace"), root)

    def _summary(self, used: Sequence[str], report: str, root: str) -> Verdict:
        checked, _, summary = report.partition("CONTEXT SUMMARY")
        # An exit code is no evidence: with some options coqchk 8.16 checks nothing and ends with 0.
        for wanted in (
            "Modules were successfully checked",
            *(f"Checking library: {root}.{m}" for m in _MODULES),
        ):
            if wanted not in checked.splitlines():
                raise VerifierError(f"coq: coqchk: expected it to say {wanted!r}; is it another version?")
        context = _context(summary)
        for title, names in context.items():
            if title.startswith(("Constants/", "Inductives")) and any(
                n.startswith(f"{root}.") for n in names
            ):
                return rejected("kernel", f"{title}: {', '.join(names)}")
        known = [_ROOTS.sub("Coq.", name) for name in context.get("Axioms", ())]
        for name in used:
            full = [known_name for known_name in known if f".{known_name}".endswith(f".{name}")]
            allowed = [n for n in full if n in self.axioms or n.startswith(f"{root}.Problem.")]
            if not full or len(allowed) < len(full):
                return rejected("axioms", f"rests on {name}")
        return Verdict(score=1.0, detail="proved" + (f", with {', '.join(used)}" if used else ""))

    def _place(self, files: Mapping[str, bytes]) -> Session:
        session = self.sandbox.session()
        opened = session.__enter__()
        try:
            for name, data in files.items():
                opened.write(name, data)
        except BaseException:
            opened.__exit__(None, None, None)
            raise
        return opened

    def _compile(self, session: Session, root: str, name: str, deadline: float) -> Execution:
        argv = [_found(self.coqc), "-q", "-w", "none", "-Q", ".", root, name]
        return session.run(limited(argv, self.cpu_s), limits=self._limits(deadline))

    def _read(self, session: Session, name: str) -> bytes | None:
        run = session.run(["/bin/cat", name], limits=Limits(output_bytes=_VO_BYTES))
        return run.stdout if run.ok else None

    def _limits(self, deadline: float) -> Limits:
        return Limits(
            wall_s=max(1.0, deadline - time.monotonic()),
            memory_bytes=self.memory_bytes,
            file_bytes=_VO_BYTES,
            output_bytes=MIB,
        )


class _Broken(Exception):
    """The trusted part does not compile."""


@lru_cache(maxsize=64)
def _compiled(verifier: CoqVerifier, theorem: Theorem) -> tuple[str, bytes]:
    """The theorem's compiled file under a root name that no completion can know."""
    root = f"T{secrets.token_hex(8)}"
    source = f"{theorem.imports}\n{theorem.definitions}\nDefinition {_STATEMENT} := {theorem.statement}.\n"
    with verifier._place({"Problem.v": source.encode()}) as session:
        run = verifier._compile(session, root, "Problem.v", time.monotonic() + verifier.wall_s)
        compiled = verifier._read(session, "Problem.vo") if run.ok else None
    if compiled is None:
        raise _Broken(_message(run))
    return root, compiled


def proof_script(attempt: Attempt, labels: tuple[str, ...]) -> str | None:
    """The last code block with one of these labels or none; the whole answer where there is no block."""
    answer = strip_thinking(attempt.text)
    if answer is None:
        return None
    script = extract_code(answer, labels)
    if script is None and not code_blocks(answer) and "```" not in answer:
        script = answer
    return script if script and script.strip() and len(script) <= MAX_CHARACTERS else None


def _submission(theorem: Theorem, script: str, root: str) -> str:
    """A whole file as it is, a bare proof behind the statement; our imports first in either case."""
    head = f"{theorem.imports}\nRequire Import {root}.Problem.\n"
    found = [sentence for sentence in sentences(script) if sentence]
    if any(declares(sentence, theorem.name) for sentence in found):
        return head + script
    start = "" if found and is_command(found[0], "Proof") else "Proof.\n"
    end = "" if found and is_command(found[-1], *_ENDS) else "\nQed.\n"
    return f"{head}Theorem {theorem.name} : {theorem.statement}.\n{start}{script}{end}"


def _assumptions(output: str) -> list[str] | str:
    """Names of the axioms that `Print Assumptions` lists, or what else it says."""
    lines = output.strip().splitlines()
    if lines == ["Closed under the global context"]:
        return []
    if not lines or lines[0] != "Axioms:":
        return lines[0][:200] if lines else "no word on what the proof rests on"
    names = []
    for line in lines[1:]:
        if line.startswith(" "):
            continue  # a type that goes on
        entry = _AXIOM.fullmatch(line)
        if entry is None:
            return line[:200]
        names.append(entry[1])
    return names


def _context(summary: str) -> dict[str, list[str]]:
    """Titles of coqchk's summary and the names under each."""
    context: dict[str, list[str]] = {}
    names: list[str] = []
    for line in summary.splitlines():
        if line.startswith("* "):
            title, _, rest = line[2:].partition(":")
            names = context.setdefault(title, [])
            if title != "Theory" and rest.strip() not in ("", "<none>"):
                names.append(rest.strip())
        elif line.strip():
            names.append(line.strip())
    return context


def failed_proof(run: Execution, message: str) -> Verdict:
    """The submission did not compile: its own doing, unless the machine gave it no time."""
    if computed_too_long(run):
        return rejected("timeout", "while compiling")
    if waited_too_long(run):
        return Verdict.broken(VerdictStatus.TIMEOUT, "timeout: the machine was too busy to compile the proof")
    if run.outcome in (Outcome.MEMORY, Outcome.OUTPUT_LIMIT):
        return rejected("memory", f"{run.outcome.value} while compiling")
    return rejected("compile", message)


def failed_check(stage: Literal["statement", "kernel"], run: Execution, message: str) -> Verdict:
    """One of our own checks failed: a verdict when it came to one, unjudged when it did not end."""
    if run.outcome is Outcome.TIMEOUT or computed_too_long(run):
        return Verdict.broken(VerdictStatus.TIMEOUT, f"timeout: while checking the {stage}")
    if run.outcome is not Outcome.EXITED:
        return Verdict.broken(VerdictStatus.ERROR, f"{run.outcome.value} while checking the {stage}")
    return rejected(stage, message)


def _message(run: Execution) -> str:
    """What Rocq says went wrong, from `Error:` on; nothing of paths and line numbers before it."""
    said = (run.stderr + run.stdout).decode(errors="replace")
    _, found, rest = said.partition("Error:")
    return " ".join((rest if found else said or run.outcome.value).split())[:300]


def rejected(reason: str, detail: str) -> Verdict:
    """Score 0, and why."""
    return Verdict(score=0.0, detail=f"{reason}: {detail}")


def _found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise VerifierError(f"coq: {program}: expected the Rocq prover on the PATH; {INSTALL}")
    return path
