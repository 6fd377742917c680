"""Judge by the text itself."""

from dataclasses import dataclass

from peira.errors import VerifierError
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict
from peira.verifiers.answer import shorten, strip_thinking, unread


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactVerifier:
    """Right when the completion, its thinking part removed, is the answer, character by character.

    Example:
        >>> ExactVerifier().verify(Task(id="a", prompt="?", answer="Paris"), Attempt(text=" Paris\\n")).score
        1.0
    """

    ignore_case: bool = False
    strip: bool = True
    """Leave out white space at both ends."""

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge one attempt: 1 or 0.

        Raises:
            VerifierError: the task's answer is not a text or a number, or is empty.
        """
        if isinstance(task.answer, bool) or not isinstance(task.answer, str | int | float):
            raise VerifierError(f"task {task.id!r}: answer = {task.answer!r}: expected a text")
        expected = self._plain(str(task.answer))
        if not expected:
            raise VerifierError(
                f"task {task.id!r}: answer = {task.answer!r}: expected a text that is not empty"
            )
        final = strip_thinking(attempt.text)
        if final is None:
            return unread(attempt, "the thinking part never ends")
        given = self._plain(final)
        if not given:
            return unread(attempt, "nothing was said")
        return Verdict(
            score=float(given == expected), detail=f"read {shorten(given)!r}, expected {shorten(expected)!r}"
        )

    def _plain(self, text: str) -> str:
        text = text.strip() if self.strip else text
        return text.casefold() if self.ignore_case else text
