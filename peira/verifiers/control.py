"""Controls: rewards that teach nothing true, to tell what a gain owes to the reward from what it does not.

A method that improves as much under one of these as under the real verifier is amplifying a habit that the
model had already. For training and shadow channels only; never put one before an evaluation.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass, replace

from peira.errors import ConfigError
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict, VerdictStatus
from peira.verifiers.compose import prepare_all
from peira.verifiers.protocol import Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomVerifier:
    """1 with this probability, else 0, whatever was said.

    The toss follows from the seed, the task's id and the completion, token for token: judging the same
    attempt again, in any process or run, gives the same score; siblings that say the same get the same.

    Example:
        >>> sure = RandomVerifier(probability=1.0)
        >>> sure.verify(Task(id="a", prompt="?"), Attempt(text="anything")).score
        1.0

    Source: Shao et al. 2025, "Spurious Rewards" (arXiv:2506.10947), the random control; read in summary.
    """

    probability: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.probability <= 1.0:
            raise ConfigError(f"verifiers: random: probability = {self.probability!r}: expected 0 to 1")

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Toss."""
        key = f"random\x00{self.seed}\x00{task.id}\x00{attempt.text}\x00{attempt.token_ids}"
        digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
        toss = int.from_bytes(digest[:7], "big") / 2**56
        return Verdict(score=float(toss < self.probability), detail="a toss")


@dataclass(frozen=True, slots=True, kw_only=True)
class IncorrectVerifier:
    """1 for an answer that another verifier reads and finds wrong, 0 for a right one and where none is read.

    Scores count as right from `threshold` on; what was not judged stays so.

    Source: the incorrect-label control of arXiv:2506.10947, in the form that needs no labels of its own.
    """

    verifier: Verifier
    threshold: float = 1.0

    def prepare(self) -> None:
        """Prepare the verifier."""
        prepare_all([self.verifier])

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge, then turn it round."""
        verdict = self.verifier.verify(task, attempt)
        if verdict.score is None or verdict.status is not VerdictStatus.SCORED:
            return verdict
        parts = {**verdict.parts, "true_score": verdict.score}
        return replace(verdict, score=float(verdict.score < self.threshold), parts=parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class MajorityVerifier:
    """Another verifier, with the most frequent of earlier answers in the place of the reference.

    The answers stand in a column of the task, as a list; of equally frequent ones the first counts. A task
    without any is abstained from.

    Example:
        >>> from peira.verifiers.exact import ExactVerifier
        >>> votes = MajorityVerifier(verifier=ExactVerifier(), column="drawn")
        >>> task = Task(id="a", prompt="?", answer="4", info={"drawn": ["5", "4", "5"]})
        >>> votes.verify(task, Attempt(text="5")).score
        1.0

    Source: the majority-vote control of arXiv:2506.10947.
    """

    verifier: Verifier
    column: str

    def prepare(self) -> None:
        """Prepare the verifier."""
        prepare_all([self.verifier])

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge against the vote."""
        answers = task.info.get(self.column)
        if not isinstance(answers, (list, tuple)) or not answers:
            return Verdict.broken(
                VerdictStatus.ABSTAIN, f"column {self.column!r}: expected a list of answers, got {answers!r}"
            )
        winner, votes = Counter(str(answer) for answer in answers).most_common(1)[0]
        verdict = self.verifier.verify(replace(task, answer=winner), attempt)
        detail = f"majority {winner!r} ({votes} of {len(answers)}); {verdict.detail}"
        return replace(verdict, detail=detail)
