"""Judges rules in Prolog: by what they derive, under the given names and under fresh ones."""

import hashlib
import re
import shutil
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random
from typing import Literal

from peira.errors import SandboxError, VerifierError
from peira.sandbox.protocol import MIB, Limits, Outcome, Sandbox
from peira.types.rollout import StopReason
from peira.types.task import Message, Task
from peira.types.verdict import Attempt, Verdict, VerdictStatus
from peira.verifiers.answer import strip_thinking
from peira.verifiers.clock import computed_too_long, limited, waited_too_long
from peira.verifiers.code.extract import code_blocks, extract_code
from peira.verifiers.rules.induction import Induction

LABELS = ("prolog", "pl", "swipl")
MAX_CHARACTERS = 20_000
INSTALL = "apt-get install swi-prolog-nox"
_RULE = re.compile(r"\[RULE\](.*?)\[/RULE\]", re.DOTALL | re.IGNORECASE)
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivations:
    """What a rule derived from one program."""

    positive: tuple[bool, ...]
    negative: tuple[bool, ...]

    @property
    def solved(self) -> bool:
        """Every positive example and no negative one."""
        return all(self.positive) and not any(self.negative)

    @property
    def partial(self) -> float:
        """The share of examples on the right side; a rule that never fires has the share of negatives."""
        right = sum(self.positive) + sum(not derived for derived in self.negative)
        return right / (len(self.positive) + len(self.negative))


@dataclass(frozen=True, slots=True, kw_only=True)
class PrologVerifier:
    """Right when the completion's rules derive every positive example and no negative one under new names.

    The task is `task.info["induction"]`. The completion gives clauses between `[RULE]` and `[/RULE]`, or in
    its last code block. Only pure clauses run: no assertion, input, output, call of a built goal, change of a
    predicate that exists already.

    The extensional check (the given names, the other label's facts visible) is always made too: `parts` holds
    both, `flags` has "shortcut" when only it passes, and "timeout" or "memory" when a proof did not end.
    """

    sandbox: Sandbox
    swipl: str = "swipl"
    judge: Literal["isomorphic", "extensional"] = "isomorphic"
    """Which of the two checks gives the score; extensional is there to study what it rewards."""
    partial: bool = False
    """Score the share of examples on the right side instead of all or nothing; mind `parts["floor"]`, which a
    rule that never fires gets."""
    inferences: int = 500_000
    """Steps of one proof; one that needs more ends the run with score 0."""
    cpu_s: float = 5.0
    """Processor seconds for one attempt; more end the run with score 0."""
    wall_s: float = 60.0
    """Seconds for one attempt; what they end is unjudged."""
    seed: int = 0
    """Of the fresh names, which also depend on task and rule: equal attempts get equal verdicts."""

    def prepare(self) -> None:
        """Find the program before the clock runs."""
        self._program()

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge one attempt.

        Raises:
            VerifierError: no Prolog, no sandbox, or a task that renaming cannot protect.
        """
        induction = Induction.of(task)
        self.prepare()
        rules = rules_in(attempt.text)
        if rules is None:
            cut = attempt.stop_reason in (StopReason.LENGTH, StopReason.ABORT)
            status = VerdictStatus.TRUNCATED if cut else VerdictStatus.UNPARSEABLE
            return Verdict(score=0.0, status=status, detail="no rule was found")
        rng = Random(hashlib.sha256(f"{self.seed}\n{task.id}\n{rules}".encode(errors="replace")).digest())
        in_use = set(_WORD.findall(rules)) | set(_WORD.findall(_text(task)))
        while True:
            try:
                other = induction.renamed(induction.fresh_names(rng), in_use=in_use)
                break
            except ValueError:
                continue  # a name that occurs in the rule or the prompt: draw again
        found = self.derivations(induction, _shuffled(other, rng), rules)
        if found == "unjudged":
            return Verdict.broken(VerdictStatus.TIMEOUT, "the machine was too busy to run the rule")
        if isinstance(found, str):
            reason = found.split(" ", 1)[0]
            flags = (reason,) if reason in ("timeout", "memory") else ()
            return Verdict(score=0.0, detail=found.replace(" ", ": ", 1)[:300], flags=flags)
        return self._verdict(induction, *found)

    def derivations(
        self, extensional: Induction, isomorphic: Induction, rules: str
    ) -> tuple[Derivations, Derivations] | str:
        """What the rules derive from both tasks, or why they were not run to the end.

        Raises:
            VerifierError: the sandbox or Prolog broke.
        """
        task = "\n".join(
            [
                ":- discontiguous fact/2, example/3.",
                f"target({extensional.target}).",
                f"inferences({self.inferences}).",
                *([f"hidden({extensional.opposite}/{_arity(extensional)})."] if extensional.opposite else []),
                *_program("extensional", extensional, labels=True),
                *_program("isomorphic", isomorphic, labels=False),
            ]
        )
        argv = [self._program(), "-q", "-f", "none", "--no-packs", "--stack-limit=256m", "judge.pl"]
        limits = Limits(wall_s=self.wall_s, memory_bytes=1024 * MIB, file_bytes=MIB)
        hypothesis = f"{rules}\n".encode(errors="replace")
        sources = {"judge.pl": _judge(), "task.pl": task.encode(), "hypothesis.pl": hypothesis}
        try:
            run = self.sandbox.run(limited(argv, self.cpu_s), files=sources, limits=limits)
        except SandboxError as error:
            raise VerifierError(f"prolog: the sandbox broke, the rule is unjudged: {error}") from error
        if computed_too_long(run):
            return "timeout"
        if waited_too_long(run):
            return "unjudged"
        if run.outcome is Outcome.MEMORY:
            return "memory"
        lines = run.stdout.decode(errors="replace").splitlines()
        if len(lines) == 1 and lines[0].split(" ")[0] in ("syntax", "refused", "empty", "timeout", "memory"):
            return lines[0]
        read = dict(filter(None, map(_derivations, lines)))
        if not run.ok or set(read) != {"extensional", "isomorphic"}:
            said = " ".join((run.stderr + run.stdout).decode(errors="replace").split())[:300]
            raise VerifierError(f"prolog: {run.outcome.value}, code {run.exit_code}: {said}")
        return read["extensional"], read["isomorphic"]

    def _verdict(self, induction: Induction, extensional: Derivations, isomorphic: Derivations) -> Verdict:
        judged = isomorphic if self.judge == "isomorphic" else extensional
        shortcut = extensional.solved and not isomorphic.solved
        derived = f"derives {sum(judged.positive)} of {len(judged.positive)} positive examples"
        return Verdict(
            score=judged.partial if self.partial else float(judged.solved),
            detail=f"{derived} and {sum(judged.negative)} of {len(judged.negative)} negative ones",
            parts={
                "solved_extensional": float(extensional.solved),
                "solved_isomorphic": float(isomorphic.solved),
                "partial_extensional": extensional.partial,
                "partial_isomorphic": isomorphic.partial,
                "floor": induction.floor,
            },
            flags=("shortcut",) if shortcut else (),
        )

    def _program(self) -> str:
        path = shutil.which(self.swipl)
        if path is None:
            raise VerifierError(f"prolog: {self.swipl}: expected SWI-Prolog on the PATH; {INSTALL}")
        return path


def rules_in(text: str) -> str | None:
    """The clauses of a completion: the last `[RULE]` part, else the last code block, else all of it.

    Example:
        >>> rules_in("So: [RULE] toxic(X) :- leaf(X, _). [/RULE]")
        'toxic(X) :- leaf(X, _).'
    """
    answer = strip_thinking(text)
    if answer is None:
        return None
    tagged = _RULE.findall(answer)
    if tagged:
        rules: str | None = tagged[-1].strip()
    else:
        rules = extract_code(answer, LABELS)
        if rules is None and not code_blocks(answer) and "```" not in answer and "[RULE]" not in answer:
            rules = answer.strip()
    return rules if rules and len(rules) <= MAX_CHARACTERS else None


def _program(name: str, task: Induction, *, labels: bool) -> list[str]:
    lines = [f"fact({name}, {fact})." for fact in task.background]
    if labels and task.opposite:
        lines += [f"fact({name}, {task.opposite}({','.join(fact.arguments)}))." for fact in task.negative]
    for sign, examples in (("pos", task.positive), ("neg", task.negative)):
        lines += [f"example({name}, {sign}, {fact})." for fact in examples]
    return lines


def _shuffled(task: Induction, rng: Random) -> Induction:
    """The same task with its facts in another order, which must not tell anything either."""
    return Induction(
        background=tuple(rng.sample(task.background, len(task.background))),
        positive=tuple(rng.sample(task.positive, len(task.positive))),
        negative=tuple(rng.sample(task.negative, len(task.negative))),
        objects=task.objects,
        opposite=task.opposite,
    )


def _derivations(line: str) -> tuple[str, Derivations] | None:
    words = line.split(" ")
    if len(words) < 4 or words[1] != "pos" or "neg" not in words:
        return None
    middle = words.index("neg")
    return words[0], Derivations(
        positive=tuple(word == "1" for word in words[2:middle]),
        negative=tuple(word == "1" for word in words[middle + 1 :]),
    )


def _arity(task: Induction) -> str:
    return task.target.split("/")[1]


def _text(task: Task) -> str:
    parts = [task.prompt] if isinstance(task.prompt, str) else task.prompt
    return "\n".join(part.content if isinstance(part, Message) else part for part in parts)


@cache
def _judge() -> bytes:
    return (files("peira") / "verifiers/rules/judge.pl").read_bytes()
