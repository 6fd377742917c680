"""How often a verifier is wrong: rates from an audited sample, with intervals.

Standard library only. Rates of verifiers that matter are small, so every rate comes with an interval that is
honest near 0 (Wilson, or the exact one of Clopper and Pearson), and Youden's J with one that combines them.
"""

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Literal

from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict
from peira.verifiers.check import MASTER_KEYS


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A share with its interval; the estimate is NaN and the interval [0, 1] when nothing was counted."""

    count: int
    total: int
    estimate: float
    low: float
    high: float

    @classmethod
    def of(
        cls,
        count: int,
        total: int,
        *,
        confidence: float = 0.95,
        method: Literal["wilson", "exact"] = "wilson",
    ) -> "Rate":
        """`count` of `total`.

        Raises:
            ValueError: a count outside of 0 to total.
        """
        if not 0 <= count <= total:
            raise ValueError(f"count = {count}: expected 0 to total = {total}")
        low, high = (wilson if method == "wilson" else exact)(count, total, confidence)
        return cls(
            count=count, total=total, estimate=count / total if total else math.nan, low=low, high=high
        )


def wilson(count: int, total: int, confidence: float = 0.95) -> tuple[float, float]:
    """Score interval of a share.

    Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference".

    Example:
        >>> [round(end, 4) for end in wilson(0, 10)]
        [0.0, 0.2775]
    """
    if total == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = count / total
    centre = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    low = 0.0 if count == 0 else max(0.0, (centre - half) / scale)
    high = 1.0 if count == total else min(1.0, (centre + half) / scale)
    return low, high


def exact(count: int, total: int, confidence: float = 0.95) -> tuple[float, float]:
    """Interval that covers at least as often as it says, whatever the share.

    Source: Clopper and Pearson 1934, "The use of confidence or fiducial limits".

    Example:
        >>> [round(end, 4) for end in exact(0, 10)]  # the upper end is 1 - 0.025 ** (1 / 10)
        [0.0, 0.3085]
    """
    if total == 0:
        return 0.0, 1.0
    tail = (1 - confidence) / 2
    low = 0.0 if count == 0 else _solve(lambda p: _at_least(count, total, p) - tail)
    high = 1.0 if count == total else _solve(lambda p: tail - (1 - _at_least(count + 1, total, p)))
    return low, high


def _at_least(count: int, total: int, share: float) -> float:
    """P(X >= count) of a binomial, from the shorter side."""
    if count <= 0:
        return 1.0
    if share <= 0.0 or share >= 1.0:
        return float(share >= 1.0)
    logs = (math.log(share), math.log1p(-share), math.lgamma(total + 1))

    def mass(k: int) -> float:
        return math.exp(
            logs[2] - math.lgamma(k + 1) - math.lgamma(total - k + 1) + k * logs[0] + (total - k) * logs[1]
        )

    if count > total / 2:
        return min(1.0, math.fsum(mass(k) for k in range(count, total + 1)))
    return max(0.0, 1.0 - math.fsum(mass(k) for k in range(count)))


def _solve(increasing: Callable[[float], float]) -> float:
    """Where an increasing function of a share crosses zero."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if increasing(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A verifier's error rates on a sample with trusted labels."""

    false_positive: Rate
    """Accepted among those that are wrong."""
    false_negative: Rate
    """Rejected among those that are right."""
    unjudged: int
    """Left out: neither right nor wrong was said of them."""
    informedness: float
    """Youden's J = 1 - false positive rate - false negative rate."""
    informedness_low: float
    informedness_high: float
    informedness_std: float

    @property
    def fate(self) -> Literal["learns", "unclear", "unlearns"]:
        """What training on such verdicts does: J > 0 learns, more slowly the smaller; J < 0 unlearns.

        A positive J is an average: one cheap output that is always accepted can still take over.

        Source: arXiv:2601.04411, section 3.
        """
        if self.informedness_low > 0:
            return "learns"
        return "unlearns" if self.informedness_high < 0 else "unclear"

    def to_json(self) -> dict[str, Any]:
        """For reports."""
        return {**asdict(self), "fate": self.fate}


def calibrate(
    verdicts: Iterable[Verdict], right: Iterable[bool], *, threshold: float = 1.0, confidence: float = 0.95
) -> Calibration:
    """Error rates of verdicts against trusted labels.

    Both kinds must be audited: with labels for rejected answers only, the false positive rate is unknown.

    Args:
        verdicts: of the verifier that is examined; unjudged ones are counted and left out.
        right: whether each answer is truly right.
        threshold: a score from which on an answer counts as accepted.
        confidence: of all intervals.

    Source: Newcombe 1998, "Interval estimation for the difference between independent proportions", method
        10, for the interval of J = true positive rate - false positive rate.
    """
    counts = {(truth, said): 0 for truth in (True, False) for said in (True, False)}
    unjudged = 0
    for verdict, truth in zip(verdicts, right, strict=True):
        if verdict.score is None:
            unjudged += 1
        else:
            counts[bool(truth), verdict.score >= threshold] += 1
    num_right = counts[True, True] + counts[True, False]
    num_wrong = counts[False, True] + counts[False, False]
    false_positive = Rate.of(counts[False, True], num_wrong, confidence=confidence)
    false_negative = Rate.of(counts[True, False], num_right, confidence=confidence)
    fp, fn = false_positive.estimate, false_negative.estimate
    informedness = 1 - fp - fn
    if math.isnan(informedness):
        low, high, std = -1.0, 1.0, math.nan
    else:
        low = informedness - math.hypot(false_negative.high - fn, false_positive.high - fp)
        high = informedness + math.hypot(fn - false_negative.low, fp - false_positive.low)
        std = math.sqrt(fp * (1 - fp) / num_wrong + fn * (1 - fn) / num_right)
    return Calibration(
        false_positive=false_positive,
        false_negative=false_negative,
        unjudged=unjudged,
        informedness=informedness,
        informedness_low=max(-1.0, low),
        informedness_high=min(1.0, high),
        informedness_std=std,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Appeals:
    """A running estimate of the false negative rate from appeals against rejections.

    A share of the rejected answers is shown to a more lenient second opinion; what it accepts, divided by the
    share, estimates the false negatives. Verdicts themselves are not changed. Biased upwards by the second
    opinion's own false positives.

    Example:
        >>> batch = Appeals(rate=0.1).updated(num_accepted=60, num_appealed=40, num_overturned=2)
        >>> round(batch.estimate, 3)
        0.115

    Source: Cai et al. 2025 (arXiv:2510.00915), the appeals section, for the estimator and its defaults.
    """

    rate: float
    """Share of rejections that is appealed."""
    estimate: float = 0.1
    """Of the false negative rate; the starting value is a guess that the decay forgets."""
    decay: float = 0.9
    prior: float = 1e-5

    def updated(self, *, num_accepted: int, num_appealed: int, num_overturned: int) -> "Appeals":
        """With one more batch; one that shows neither an acceptance nor an overturned appeal says nothing."""
        if num_overturned > num_appealed:
            raise ValueError(
                f"num_overturned = {num_overturned}: expected at most {num_appealed}, the appealed"
            )
        if num_accepted == 0 and num_overturned == 0:
            return self
        missed = num_overturned / self.rate
        seen = (missed + self.prior) / (missed + num_accepted + 2 * self.prior)
        estimate = self.decay * self.estimate + (1 - self.decay) * seen
        return Appeals(rate=self.rate, estimate=estimate, decay=self.decay, prior=self.prior)

    def is_appealed(self, key: str) -> bool:
        """Whether the rejection with this key is of the share; the same key always gets the same reply."""
        return random.Random(f"appeal {key}").random() < self.rate


def worthless_attempts(tasks: Sequence[Task], *, per_task: int | None = None) -> list[tuple[Task, Attempt]]:
    """Attempts that deserve nothing: master keys, the question back, other answers, all answers at once.

    The accepted share of these must be 0 for a verifier of answers; a channel that accepts one will be found.
    """
    attempts = []
    for index, task in enumerate(tasks):
        prompt = task.prompt if isinstance(task.prompt, str) else task.prompt[-1].content
        texts = list(MASTER_KEYS)
        if str(task.answer) not in prompt:
            texts.append(prompt)
        others = [str(other.answer) for other in tasks if str(other.answer) != str(task.answer)]
        if others:
            other = others[index % len(others)]
            texts += [rf"\boxed{{{other}}}", f"<answer>{other}</answer>", other]
            spray = ", ".join([str(task.answer), *others[:9]])
            texts += [rf"\boxed{{{spray}}}", f"<answer>{spray}</answer>"]
        texts = [text for text in texts if text.strip() != str(task.answer).strip()]
        attempts += [(task, Attempt(text=text)) for text in texts[:per_task]]
    return attempts


def accepted(attempts: Sequence[tuple[Task, Attempt]], verdicts: Sequence[Verdict]) -> list[tuple[Task, str]]:
    """Those that got the full score."""
    return [
        (task, attempt.text)
        for (task, attempt), verdict in zip(attempts, verdicts, strict=True)
        if verdict.score == 1.0
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """A rejected answer that a second opinion accepts."""

    task_id: str
    text: str
    first: str
    """What the first verifier said."""
    second: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What a second opinion says of rejected answers."""

    num_rejected: int
    num_examined: int
    overturned: Rate
    mismatches: tuple[Mismatch, ...]


def sample_rejections(
    attempts: Sequence[tuple[Task, Attempt]], most: int, *, seed: int = 0
) -> list[tuple[Task, Attempt]]:
    """At most so many different rejected attempts, drawn evenly."""
    unique = list({(task.id, attempt.text): (task, attempt) for task, attempt in attempts}.values())
    return unique if len(unique) <= most else random.Random(seed).sample(unique, most)


def audit(
    num_rejected: int,
    attempts: Sequence[tuple[Task, Attempt]],
    first: Sequence[Verdict],
    second: Sequence[Verdict],
    *,
    confidence: float = 0.95,
) -> Audit:
    """Compare two opinions on rejected attempts: what the second accepts may be a false negative."""
    judged = [
        (task, attempt, a, b)
        for (task, attempt), a, b in zip(attempts, first, second, strict=True)
        if b.score is not None
    ]
    mismatches = tuple(
        Mismatch(task_id=task.id, text=attempt.text[-500:], first=a.detail, second=b.detail)
        for task, attempt, a, b in judged
        if b.score == 1.0
    )
    return Audit(
        num_rejected=num_rejected,
        num_examined=len(judged),
        overturned=Rate.of(len(mismatches), len(judged), confidence=confidence),
        mismatches=mismatches,
    )
