"""What a noisy verifier does to a run in the long term: the replicator equation of RLVR.

p is the policy's mass on wrong answers to one prompt, J = 1 - fpr - fnr the verifier's informedness, q(p) =
(1 - fnr) - J p the observed pass rate and sigma = sqrt(q (1 - q)). With advantages scaled by the group's
standard deviation,

    dp/dt = -rate * J * g(q) * p^2 (1 - p)^2

where g is 1 / sigma for large groups and `group_gain` exactly. J > 0 learns at a rate that noise only slows,
J = 0 drifts, J < 0 unlearns; from anywhere. Plain floats: these curves are drawn beside a run, not trained
on.

Source: arXiv:2601.04411; the finite-group factor is our derivation. Prompts are independent in this theory,
so an answer that is accepted everywhere can still collapse a run at high J.
"""

import math
from collections.abc import Sequence

from peira.errors import ConfigError


def pass_rate(wrong_mass: float, *, false_positive_rate: float, false_negative_rate: float) -> float:
    """Observed share of accepted answers at this share of wrong ones."""
    gain = 1 - false_positive_rate - false_negative_rate
    return (1 - false_negative_rate) - gain * wrong_mass


def group_gain(accepted: float, group_size: int | None) -> float:
    """Mean advantage of an accepted rollout minus that of a rejected one, when each of G is accepted with q.

    With the population standard deviation, collapsed groups at 0 and no eps. None means large groups: 1 /
    sigma. For two rollouts it is 1 whatever q is.
    """
    if not 0 < accepted < 1:
        if group_size is None:
            return math.inf
        return math.sqrt(group_size - 1)
    if group_size is None:
        return 1 / math.sqrt(accepted * (1 - accepted))
    n = group_size - 1
    total = 0.0
    for k in range(n + 1):
        chance = math.exp(
            math.lgamma(n + 1)
            - math.lgamma(k + 1)
            - math.lgamma(n - k + 1)
            + k * math.log(accepted)
            + (n - k) * math.log1p(-accepted)
        )
        up = math.sqrt((n - k) / (k + 1))  # accepted itself: k + 1 of G; 0 when all are
        down = math.sqrt(k / (group_size - k))  # rejected itself: k of G; 0 when none is
        total += chance * (up + down)
    return total


def drift(
    wrong_mass: float,
    *,
    false_positive_rate: float,
    false_negative_rate: float,
    rate: float = 1.0,
    group_size: int | None = None,
) -> float:
    """dp/dt of this module's equation."""
    p = wrong_mass
    if p in (0.0, 1.0):
        return 0.0
    gain = 1 - false_positive_rate - false_negative_rate
    accepted = pass_rate(p, false_positive_rate=false_positive_rate, false_negative_rate=false_negative_rate)
    return -rate * gain * group_gain(accepted, group_size) * (p * (1 - p)) ** 2


def predict(
    wrong_mass: float,
    times: Sequence[float],
    *,
    false_positive_rate: float,
    false_negative_rate: float,
    rate: float = 1.0,
    group_size: int | None = None,
    max_change: float = 0.02,
) -> list[float]:
    """Wrong mass at each of these times, from this mass at time 0; relative error about 1e-6.

    One unit of time is one step of size `rate` on the logit of one prompt. Classic Runge-Kutta on the logit,
    each step at most `max_change` of a logit.

    Raises:
        ConfigError: the mass is not inside (0, 1), or times do not rise from 0.
    """
    if not 0 < wrong_mass < 1:
        raise ConfigError(f"predict: wrong_mass = {wrong_mass}: expected a number inside (0, 1)")
    if any(b < a for a, b in zip([0.0, *times], times, strict=False)):
        raise ConfigError("predict: times must rise from 0")
    gain = 1 - false_positive_rate - false_negative_rate

    def slope(logit: float) -> float:
        small = 1 / (1 + math.exp(abs(logit)))  # the smaller of p and 1 - p, without cancellation
        p = small if logit < 0 else 1 - small
        accepted = pass_rate(
            p, false_positive_rate=false_positive_rate, false_negative_rate=false_negative_rate
        )
        if group_size is None and false_positive_rate == 0 and false_negative_rate == 0:
            sigma = math.sqrt(small * (1 - small))
            return -rate * sigma
        return -rate * gain * group_gain(accepted, group_size) * small * (1 - small)

    logit, now, found = math.log(wrong_mass / (1 - wrong_mass)), 0.0, []
    for target in times:
        while now < target:
            k1 = slope(logit)
            width = min(target - now, max_change / max(abs(k1), 1e-300))
            k2 = slope(logit + width / 2 * k1)
            k3 = slope(logit + width / 2 * k2)
            k4 = slope(logit + width * k3)
            logit += width / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            now = target if width == target - now else now + width
        found.append(1 / (1 + math.exp(-logit)) if logit > -700 else 0.0)
    return found


def noise_free(wrong_mass: float, time: float, *, rate: float = 1.0) -> float:
    """Closed form of `predict` for J = 1 and large groups."""
    start = (2 * wrong_mass - 1) / math.sqrt(wrong_mass * (1 - wrong_mass))
    u = start - rate * time / 2
    return 0.5 + 0.5 * u / math.sqrt(4 + u * u)


def verdict_of(low: float, high: float) -> str:
    """Fate in one word from the interval of J: "learns", "unlearns", or "unknown"."""
    if low > 0:
        return "learns"
    return "unlearns" if high < 0 else "unknown"
