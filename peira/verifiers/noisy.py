"""Errors of known rates, to study what a noisy verifier does to learning."""

import hashlib
from dataclasses import dataclass, replace

from peira.errors import ConfigError
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict
from peira.verifiers.compose import prepare_all
from peira.verifiers.protocol import Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyVerifier:
    """Flips the right/wrong verdicts of another verifier at known rates.

    Whether a verdict is flipped follows from the seed, the task's id and the completion's text alone: judging
    the same attempt again, in another process or run, gives the same verdict. Scores count as right from
    `threshold` on and become 0 or 1. For training only; never put it before an evaluation.

    Example:
        >>> from peira.verifiers.exact import ExactVerifier
        >>> always = NoisyVerifier(verifier=ExactVerifier(), false_positive_rate=1.0)
        >>> always.verify(Task(id="a", prompt="?", answer="yes"), Attempt(text="no")).score
        1.0

    Source: Cai et al. 2025 (arXiv:2510.00915), section 3, for the channel of two error rates.
    """

    verifier: Verifier
    false_positive_rate: float = 0.0
    """P(judged right | wrong)."""
    false_negative_rate: float = 0.0
    """P(judged wrong | right)."""
    threshold: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("false_positive_rate", "false_negative_rate"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigError(f"verifiers: noisy: {name} = {getattr(self, name)!r}: expected 0 to 1")

    def prepare(self) -> None:
        """Prepare the verifier."""
        prepare_all([self.verifier])

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge, then flip or not; what was not judged stays so."""
        verdict = self.verifier.verify(task, attempt)
        if verdict.score is None:
            return verdict
        right = verdict.score >= self.threshold
        rate = self.false_negative_rate if right else self.false_positive_rate
        flipped = self._uniform(task, attempt) < rate
        parts = {**verdict.parts, "clean_score": verdict.score, "flipped": float(flipped)}
        return replace(verdict, score=float(right != flipped), parts=parts)

    def _uniform(self, task: Task, attempt: Attempt) -> float:
        key = f"{self.seed}\x00{task.id}\x00{attempt.text}".encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.sha256(key).digest()[:7], "big") / 2**56
