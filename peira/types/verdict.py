"""What a verifier is shown and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from peira.types.rollout import Rollout, StopReason
from peira.types.task import Message


class VerdictStatus(StrEnum):
    """How judging ended. The first three are the policy's doing and carry a score; the others are ours."""

    SCORED = "scored"
    UNPARSEABLE = "unparseable"
    """No answer could be read. The policy's fault: it has a score, and can learn from it."""
    TRUNCATED = "truncated"
    """The completion was cut off before an answer could be read."""
    TIMEOUT = "timeout"
    """The verifier did not finish in time and was killed."""
    ABSTAIN = "abstain"
    """The verifier declined to judge."""
    ERROR = "error"
    """The verifier broke: an exception, a wrong type, NaN, a killed process."""


JUDGED = frozenset({VerdictStatus.SCORED, VerdictStatus.UNPARSEABLE, VerdictStatus.TRUNCATED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What a verifier judges: a completion's text and what is known about how it came to be.

    Example:
        >>> Attempt(text="The answer is 4.").stop_reason
        <StopReason.END: 'end'>
    """

    text: str
    stop_reason: StopReason = StopReason.END
    token_ids: tuple[int, ...] = ()
    messages: tuple[Message, ...] = ()
    """The conversation so far, last completion included, when there were several turns."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """What an environment wants its verifier to know."""

    @classmethod
    def of(cls, rollout: Rollout) -> "Attempt":
        """The attempt that a finished rollout represents."""
        last = rollout.turns[-1].completion
        return cls(text=rollout.text, stop_reason=last.stop_reason, token_ids=last.token_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One verifier's answer on one attempt.

    `score` is a number in [0, 1] exactly when the status says that the attempt was judged, and None
    otherwise: what was not judged has no score, and so cannot be mistaken for a wrong answer.

    Example:
        >>> Verdict(score=1.0).judged, Verdict.broken(VerdictStatus.ERROR, "no library").judged
        (True, False)
    """

    score: float | None
    status: VerdictStatus = VerdictStatus.SCORED
    detail: str = ""
    """One line for a person: what was read, what was expected."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Components of the score, by name, for logs and reports."""
    step_scores: tuple[float, ...] = ()
    """One score per reasoning step or turn, from verifiers that give them."""
    flags: tuple[str, ...] = ()
    """Observations reported beside the score and never merged with it (special-casing, injection, ...)."""

    def __post_init__(self) -> None:
        if (self.score is not None) != (self.status in JUDGED):
            raise ValueError(f"verdict: score = {self.score!r} does not go with status {self.status.value!r}")
        if self.score is not None and not 0.0 <= self.score <= 1.0:  # NaN fails this too
            raise ValueError(f"verdict: score = {self.score!r}: expected a number in [0, 1]")

    @property
    def judged(self) -> bool:
        """Whether a score exists; the reward may then be used."""
        return self.status in JUDGED

    @classmethod
    def broken(cls, status: VerdictStatus, detail: str) -> "Verdict":
        """A verdict without a score: TIMEOUT, ABSTAIN or ERROR."""
        return cls(score=None, status=status, detail=detail)
