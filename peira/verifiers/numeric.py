r"""Judge one number."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from peira.errors import VerifierError
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict
from peira.verifiers.answer import last_box, shorten, strip_thinking, unread
from peira.verifiers.number import last_number, read_number, reference_number


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericVerifier:
    r"""Right when the number given equals the task's answer, exactly or within a relative tolerance.

    Exact arithmetic: 0.5, 1/2, 50% and \frac{1}{2} are one number, 1,000 is 1000, and 0.333 is not 1/3 unless
    the tolerance says so. A thinking part is never read. It does not evaluate expressions and knows no units:
    see `MathVerifier`.

    Example:
        >>> task = Task(id="sum", prompt="37 + 58", answer="95")
        >>> NumericVerifier().verify(task, Attempt(text="37 + 58 = 95.")).score
        1.0
    """

    extract: Literal["boxed", "last", "whole"] = "last"
    """boxed: the last \\boxed{}; last: that box if there is one, else the last number in the text; whole: the
    text is a number and nothing else."""
    relative_tolerance: float = 0.0

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge one attempt: 1 or 0; UNPARSEABLE or TRUNCATED with score 0 when no number can be read.

        Raises:
            VerifierError: the task's answer is not a number.
        """
        expected = reference_number(task.answer)
        if expected is None:
            raise VerifierError(f"task {task.id!r}: answer = {task.answer!r}: expected a number")
        said = self._said(attempt.text)
        given = None if said is None else read_number(said)
        if given is None:
            return unread(attempt, "no number" if not said else f"read {shorten(said)!r}: not a number")
        tolerance = Fraction(self.relative_tolerance) * abs(expected)
        return Verdict(
            score=float(abs(given - expected) <= tolerance),
            detail=f"read {shorten(str(said))}, expected {shorten(str(task.answer))}",
        )

    def _said(self, text: str) -> str | None:
        final = strip_thinking(text)
        if final is None:
            return None
        if self.extract == "whole":
            return final
        box = last_box(final)
        if box is not None or self.extract == "boxed":
            return box
        return last_number(final)
