"""Judge the shape of a completion, whatever it says."""

import re
from dataclasses import dataclass

from peira.errors import ConfigError
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatVerifier:
    r"""1 when the whole completion matches the pattern, else 0. A dot matches line ends too.

    Needs no answer. Give it a small weight: a shape is easier to learn than a truth.

    Example:
        >>> shape = FormatVerifier(pattern=r"<think>.*</think>\s*<answer>.*</answer>\s*")
        >>> task = Task(id="any", prompt="?")
        >>> shape.verify(task, Attempt(text="<think>a</think><answer>b</answer>")).score
        1.0
    """

    pattern: str

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern, re.DOTALL)
        except re.error as error:
            raise ConfigError(
                f"verifiers: format: pattern = {self.pattern!r}: expected a regular expression ({error})"
            ) from error

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge one attempt: 1 or 0."""
        matches = re.fullmatch(self.pattern, attempt.text, re.DOTALL) is not None
        return Verdict(score=float(matches), detail="the pattern matches" if matches else "another shape")
