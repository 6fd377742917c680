r"""Judge a mathematical answer."""

from dataclasses import dataclass
from typing import Literal

from peira.errors import VerifierError
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict
from peira.verifiers.answer import answer_tag, final_answer, last_box, shorten, strip_thinking, unread
from peira.verifiers.number import read_number


@dataclass(frozen=True, slots=True, kw_only=True)
class MathVerifier:
    r"""Right when the one answer that the completion commits to equals the task's answer.

    Example:
        >>> task = Task(id="half", prompt="?", answer="0.5")
        >>> MathVerifier().verify(task, Attempt(text=r"so \boxed{\frac{1}{2}}")).score
        1.0
    """

    extract: Literal["boxed", "final", "tag", "whole"] = "boxed"

    def prepare(self) -> None:
        """Load math-verify and SymPy before the clock runs."""
        import math_verify  # noqa: F401

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge one attempt: 1 or 0.

        Raises:
            VerifierError: the task's answer cannot be read.
        """
        if task.answer is None or isinstance(task.answer, bool):
            raise VerifierError(f"task {task.id!r}: answer = {task.answer!r}: expected a mathematical answer")
        gold = str(task.answer).rsplit("####", 1)[-1].strip()
        gold = last_box(gold) or gold
        final = strip_thinking(attempt.text)
        said = None if final is None else self._said(final)
        if not said or not said.strip():
            return unread(attempt, "no answer")
        if len(said) > 512:
            return unread(attempt, f"an answer of {len(said)} characters")
        return Verdict(
            score=float(_equal(gold, said.strip())), detail=f"read {shorten(said)}, expected {shorten(gold)}"
        )

    def _said(self, text: str) -> str | None:
        match self.extract:
            case "boxed":
                return last_box(text)
            case "final":
                return final_answer(text)
            case "tag":
                tag = answer_tag(text)
                return None if tag is None else last_box(tag) or tag
            case "whole":
                return last_box(text) or text


def _equal(gold: str, said: str) -> bool:
    if gold == said:
        return True
    gold_number, said_number = read_number(gold), read_number(said)
    if gold_number is not None and said_number is not None:
        return gold_number == said_number
    from math_verify import parse, verify

    expected = parse(f"\\boxed{{{gold}}}", parsing_timeout=None)
    given = parse(f"\\boxed{{{said}}}", parsing_timeout=None)
    return bool(verify(expected, given, timeout_seconds=None))
