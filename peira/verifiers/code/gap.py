"""The gap between the tests a policy is trained on and the tests it never sees.

Nothing here is a `Verdict`, and no function here returns one: what held-out tests say has no way into a
reward, a filter, a curriculum or a choice of checkpoint. A gap is no proof of intent: see `composition_gap`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GapReport:
    """Visible and held-out results of one program at one task."""

    task_id: str
    visible_passed: int
    visible_total: int
    heldout_passed: int
    heldout_total: int
    flags: tuple[str, ...] = ()
    """What a static look at the source suggests; beside the gap, never part of it."""

    def __post_init__(self) -> None:
        if self.visible_total < 1 or self.heldout_total < 1:
            raise ValueError(f"gap: task {self.task_id}: expected tests on both sides, none is no 100 %")

    @property
    def visible(self) -> float:
        """Percent of visible tests that passed."""
        return 100 * self.visible_passed / self.visible_total

    @property
    def heldout(self) -> float:
        """Percent of held-out tests that passed."""
        return 100 * self.heldout_passed / self.heldout_total

    @property
    def gap(self) -> float:
        """Percentage points, visible minus held-out; negative when the held-out tests went better.

        Source: SpecBench, arXiv:2605.21384.

        Example:
            >>> round(GapReport(task_id="t", visible_passed=45, visible_total=45,
            ...                 heldout_passed=173, heldout_total=178).gap, 4)
            2.809
        """
        return self.visible - self.heldout


def macro_gap(reports: Sequence[GapReport]) -> float:
    """Mean of the gaps of tasks: every task counts the same, however many tests it has."""
    return math.fsum(report.gap for report in reports) / len(reports)


def selection_regret(reports: Sequence[GapReport]) -> float:
    """How many held-out points are lost by keeping the candidate with the best visible score."""
    kept = max(reports, key=lambda report: report.visible)
    return max(report.heldout for report in reports) - kept.heldout


def interquartile_mean(values: Sequence[float]) -> float:
    """Mean of the middle half of the sorted values."""
    quarter = len(values) // 4
    middle = sorted(values)[quarter : len(values) - quarter]
    return math.fsum(middle) / len(middle)


@dataclass(frozen=True, slots=True)
class SizeSlope:
    """Least squares of gap against log10 of the reference's lines of code."""

    slope: float
    """Points per tenfold size."""
    intercept: float
    r_squared: float


def size_slope(lines_of_code: Sequence[int], gaps: Sequence[float]) -> SizeSlope:
    """Fit `gap = intercept + slope * log10(lines)`."""
    x = [math.log10(lines) for lines in lines_of_code]
    mean_x, mean_y = math.fsum(x) / len(x), math.fsum(gaps) / len(gaps)
    spread = math.fsum((a - mean_x) ** 2 for a in x)
    slope = math.fsum((a - mean_x) * (b - mean_y) for a, b in zip(x, gaps, strict=True)) / spread
    intercept = mean_y - slope * mean_x
    residual = math.fsum((b - intercept - slope * a) ** 2 for a, b in zip(x, gaps, strict=True))
    total = math.fsum((b - mean_y) ** 2 for b in gaps)
    return SizeSlope(slope=slope, intercept=intercept, r_squared=1 - residual / total if total else 1.0)


def composition_gap(feature_rate: float, features: int) -> float:
    """The gap that appears with no cheating at all: features work alone, a held-out test needs several at
    once.

    With each feature right with probability s independently, `100 * (s - s**k)`. Report it beside a measured
    gap.
    """
    return 100 * (feature_rate - feature_rate**features)
