"""How far two raters agree, beyond what chance gives: a judge against people, or against itself."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Cohen's kappa and what it was made from."""

    items: int
    observed: float
    """Share of items rated alike (weighted: mean credit)."""
    expected: float
    """The same, had each rater kept their own rates and rated by chance."""
    kappa: float
    """(observed - expected) / (1 - expected); 1 when both raters only ever said one and the same thing."""
    standard_error: float
    """Of kappa, large samples: sqrt(observed (1 - observed) / n) / (1 - expected)."""

    @property
    def interval(self) -> tuple[float, float]:
        """95 percent interval of kappa, within [-1, 1]."""
        reach = 1.96 * self.standard_error
        return max(-1.0, self.kappa - reach), min(1.0, self.kappa + reach)


def cohen_kappa(
    one: Sequence[Hashable],
    other: Sequence[Hashable],
    *,
    weights: Literal["none", "linear", "quadratic"] = "none",
) -> Agreement:
    """Agreement of two raters on the same items, in the same order.

    Linear and quadratic weights give partial credit to numbers that are close, over the range that occurs.

    Source: Cohen 1960, Educational and Psychological Measurement 20(1); weights: Cohen 1968, Psychological
    Bulletin 70(4).

    Example:
        >>> one = [1] * 25 + [0] * 25
        >>> other = [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15
        >>> round(cohen_kappa(one, other).kappa, 3)
        0.4
    """
    if len(one) != len(other) or not one:
        raise ValueError(f"kappa: {len(one)} and {len(other)} ratings: expected as many, and at least one")
    credit = _credit([*one, *other], weights)
    items = len(one)
    observed = math.fsum(map(credit, one, other)) / items
    mine, theirs = Counter(one), Counter(other)
    expected = math.fsum(credit(a, b) * mine[a] * theirs[b] / items**2 for a in mine for b in theirs)
    if math.isclose(expected, 1.0):
        return Agreement(items=items, observed=observed, expected=1.0, kappa=1.0, standard_error=0.0)
    return Agreement(
        items=items,
        observed=observed,
        expected=expected,
        kappa=(observed - expected) / (1 - expected),
        standard_error=math.sqrt(max(0.0, observed * (1 - observed)) / items) / (1 - expected),
    )


def _credit(values: Sequence[Hashable], weights: str) -> Callable[[Hashable, Hashable], float]:
    if weights == "none":
        return lambda a, b: float(a == b)
    numbers = [float(value) for value in values]  # type: ignore[arg-type]
    spread = max(numbers) - min(numbers) or 1.0
    power = 1 if weights == "linear" else 2
    return lambda a, b: 1 - (abs(float(a) - float(b)) / spread) ** power  # type: ignore[arg-type]
