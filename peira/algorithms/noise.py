"""Verifiers that err: corrections of the reward, estimates of the rates, and how sure they are.

A verifier accepts a wrong answer with the false positive rate and rejects a right one with the false negative
rate. What it can tell is the gain 1 - fpr - fnr, Youden's J (informedness): expected rewards shrink by it,
and at 0 the reward says nothing.

Corrections are affine in the reward, so a division by the group's standard deviation removes them exactly
when rates are the same throughout a group; the configuration refuses that combination. With one pair of
rates for all, the backward correction is a rescale by 1 / J, and the forward one a constant baseline: they
differ from no correction only where rates differ between rollouts, or in collapsed groups.
"""

import math
from statistics import NormalDist

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from peira.algorithms.family import StepContext
from peira.errors import ConfigError


def backward_corrected(
    rewards: Float[Tensor, "P G"],
    false_positive_rates: Float[Tensor, "P G"],
    false_negative_rates: Float[Tensor, "P G"],
    *,
    min_gain: float,
) -> Float[Tensor, "P G"]:
    """(reward - fpr) / max(1 - fpr - fnr, min_gain): its mean given the truth is the true reward.

    Compare within a group without its standard deviation, best leave-one-out. For binary rewards.

    Source: arXiv:2510.00915, backward correction.
    """
    gain = (1 - false_positive_rates - false_negative_rates).clamp(min=min_gain)
    return (rewards - false_positive_rates) / gain


def forward_corrected(
    rewards: Float[Tensor, "P G"], false_negative_rates: Float[Tensor, "P G"]
) -> Float[Tensor, "P G"]:
    """reward - (1 - fnr): 0 on average for a right answer, -(1 - fpr - fnr) for a wrong one, whatever fpr is.

    This is the coefficient itself: no baseline, no scaling. It is not 0 in collapsed groups.

    Source: arXiv:2510.00915, forward correction.
    """
    return rewards - (1 - false_negative_rates)


def correct_backward(
    rewards: Float[Tensor, "P G"],
    context: StepContext,
    *,
    false_positive_rate: float,
    false_negative_rate: float,
    min_gain: float,
) -> Float[Tensor, "P G"]:
    """`backward_corrected` with the context's rates by rollout, or these where it has none."""
    positive, negative = _rates(rewards, context, false_positive_rate, false_negative_rate)
    return backward_corrected(rewards, positive, negative, min_gain=min_gain)


def correct_forward(
    rewards: Float[Tensor, "P G"],
    context: StepContext,
    *,
    false_negative_rate: float,
) -> Float[Tensor, "P G"]:
    """`forward_corrected` with the context's rates by rollout, or this where it has none."""
    _, negative = _rates(rewards, context, 0.0, false_negative_rate)
    return forward_corrected(rewards, negative)


def _rates(
    rewards: Float[Tensor, "P G"],
    context: StepContext,
    false_positive_rate: float,
    false_negative_rate: float,
) -> tuple[Float[Tensor, "P G"], Float[Tensor, "P G"]]:
    positive = context.false_positive_rates
    negative = context.false_negative_rates
    positive = torch.full_like(rewards, false_positive_rate) if positive is None else positive
    negative = torch.full_like(rewards, false_negative_rate) if negative is None else negative
    if not ((positive >= 0) & (negative >= 0) & (positive + negative < 1)).all():
        raise ConfigError(
            "algorithm.noise: false positive and false negative rates must be >= 0 and add up to less than "
            "1: beyond that the verifier points the other way, and no correction is valid"
        )
    return positive.to(rewards.dtype), negative.to(rewards.dtype)


def correction_audit(
    corrected: Float[Tensor, "P G"], plain: Float[Tensor, "P G"], judged: Bool[Tensor, "P G"]
) -> dict[str, float]:
    """How far corrected advantages are from uncorrected ones; a cosine of 1 means that nothing is tested."""
    a, b = corrected[judged].double(), plain[judged].double()
    if not a.numel():
        return {}
    gap = (a - b).abs()
    norms = float(a.norm() * b.norm())
    metrics = {"noise/gap_mean": float(gap.mean()), "noise/gap_max": float(gap.max())}
    if norms > 0:
        metrics["noise/cosine"] = float((a * b).sum()) / norms
    return metrics


def false_negative_rate(
    num_recovered: int,
    num_accepted: int,
    *,
    appeal_rate: float,
    prior_right: float = 1e-5,
    prior_wrong: float = 1e-5,
) -> float | None:
    """Rate of right answers rejected, from appeals: a random share of rejections goes to a lenient checker.

    (recovered / appeal_rate + a) / (recovered / appeal_rate + accepted + a + b); None when nothing was
    recovered and nothing accepted, where the formula would give the prior's mean. Biased up by a lenient
    checker that accepts wrong answers, and by rule-accepted answers that are not right.

    Args:
        num_recovered: appealed rejections that the lenient checker accepts.
        num_accepted: answers that the rule accepted, taken as right.
        appeal_rate: chance that a rejection is appealed; in (0, 1].

    Source: arXiv:2510.00915, appeals (Horvitz-Thompson).
    """
    if num_recovered == 0 and num_accepted == 0:
        return None
    missed = num_recovered / appeal_rate
    return (missed + prior_right) / (missed + num_accepted + prior_right + prior_wrong)


def smoothed(previous: float | None, new: float | None, *, decay: float) -> float | None:
    """decay * previous + (1 - decay) * new; whichever exists when only one does."""
    if previous is None or new is None:
        return new if previous is None else previous
    return decay * previous + (1 - decay) * new


def wilson_interval(count: int | float, total: int | float, *, confidence: float) -> tuple[float, float]:
    """Score interval of a proportion; (0, 1) when nothing was counted.

    Source: Wilson 1927.
    """
    if total == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = count / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    low = 0.0 if count == 0 else centre - half  # exact at the ends, where rounding would leave 1e-17
    return low, 1.0 if count == total else centre + half


def informedness(
    *, false_positives: int, wrong: int, false_negatives: int, right: int, confidence: float
) -> tuple[float, float, float]:
    """Youden's J = 1 - fpr - fnr from an audit with trusted labels: (estimate, low, high).

    The interval joins the two Wilson intervals (Newcombe's method for differences of proportions); without
    any wrong or any right answer in the audit the estimate of that rate is one half. When `low` is not above
    0 the verifier has not been shown to point the right way. A J above 0 on average is no certificate: one
    cheaply reachable answer that is always accepted suffices for collapse.

    Source: Newcombe 1998, method 10.
    """
    rates, lows, highs = [], [], []
    for count, total in ((false_positives, wrong), (false_negatives, right)):
        low, high = wilson_interval(count, total, confidence=confidence)
        rate = count / total if total else 0.5
        rates.append(rate)
        lows.append((rate - low) ** 2)
        highs.append((high - rate) ** 2)
    estimate = 1 - sum(rates)
    return estimate, max(-1.0, estimate - math.sqrt(sum(highs))), min(1.0, estimate + math.sqrt(sum(lows)))


def informedness_from_appeals(
    *,
    accepted: int | float,
    rejected: int | float,
    appealed: int | float,
    overturned: int | float,
    false_positive_rate: float,
    confidence: float,
) -> tuple[float, float, float, float] | None:
    """(false negative rate, J, low, high) from appeals, the false positive rate being given.

    A share s = overturned / appealed of the R rejections is right after all. The other R (1 - s) are wrong,
    a share 1 - fpr of all that are wrong; so fpr / (1 - fpr) times as many are among the A accepted, and the
    rest of those is right: fnr = R s / (R s + A - R (1 - s) fpr / (1 - fpr)). The Wilson interval of s,
    carried through, gives J's; that the counts R and A are samples too is left out. Where every acceptance
    may be a false one, the interval is that of knowing nothing. Counts may be decayed sums.

    None while nothing was appealed, or when nothing is found right.

    Source: arXiv:2510.00915 for the estimator; the observed share in place of the chance of an appeal, taking
        false positives out of the accepted, and the interval are ours.
    """
    if appealed <= 0:
        return None

    def rate(share: float) -> float | None:
        missed = rejected * share
        false_accepts = (rejected - missed) * false_positive_rate / (1 - false_positive_rate)
        right = missed + max(0.0, accepted - false_accepts)
        return missed / right if right > 0 else None

    estimate = rate(overturned / appealed)
    if estimate is None:
        return None
    ends = [rate(share) for share in wilson_interval(overturned, appealed, confidence=confidence)]
    known = [end for end in ends if end is not None]
    low, high = (min(known), max(known)) if len(known) == 2 else (0.0, 1.0)
    gain = 1 - false_positive_rate
    return estimate, gain - estimate, gain - high, gain - low
