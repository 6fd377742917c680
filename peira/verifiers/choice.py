"""Judge one letter among several."""

import re
from dataclasses import dataclass

from peira.errors import VerifierError
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict
from peira.verifiers.answer import answer_tag, final_answer, plain_digits, shorten, strip_thinking, unread

_DRESS = re.compile(r"\\(?:text|mathrm|mathbf|textbf|rm)\s*\{([^{}]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceVerifier:
    r"""Right when the one option that the completion commits to is the task's answer.

    Read, in this order: the last \boxed{}, the last `<answer>` element, the last "answer is ..." line, or a
    completion that is an option and nothing else. Several options in that place are no answer.

    Example:
        >>> task = Task(id="q", prompt="?", answer="B")
        >>> said = Attempt(text="The answer is (B)."), Attempt(text="A, B, C, D")
        >>> [ChoiceVerifier().verify(task, attempt).score for attempt in said]
        [1.0, 0.0]
    """

    choices: str = "ABCD"
    """The options, one character each; letters of either case are read."""

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge one attempt: 1 or 0; UNPARSEABLE or TRUNCATED with score 0 without a single option.

        Raises:
            VerifierError: the task's answer is not one of the choices.
        """
        expected = self._option(str(task.answer))
        if expected is None:
            raise VerifierError(
                f"task {task.id!r}: answer = {task.answer!r}: expected one of {', '.join(self.choices)}"
            )
        final = strip_thinking(attempt.text)
        if final is None:
            return unread(attempt, "the thinking part never ends")
        said = answer_tag(final) or final_answer(final) or final
        given = self._option(said)
        if given is None:
            return unread(attempt, f"read {shorten(said)!r}: not one of {', '.join(self.choices)}")
        return Verdict(score=float(given == expected), detail=f"read {given}, expected {expected}")

    def _option(self, text: str) -> str | None:
        r"""B, (b), B., **B**, \text{B} and "B) because ..." are B; "A or B" and "Because" are none."""
        text = _DRESS.sub(r"\1", plain_digits(text)[:2000]).replace("$", " ").replace("*", " ").strip()
        head = re.match(rf"\(?\s*([{re.escape(self.choices)}])\s*(?:[).:,;]|$)", text, re.IGNORECASE)
        if head is None:
            return None
        rest = text[head.end() :]
        if re.search(rf"(?<!\w)[{re.escape(self.choices.upper())}](?!\w)", rest):
            return None
        return next(choice for choice in self.choices if choice.casefold() == head.group(1).casefold())
