"""How often the verifiers err: rates for the corrections, a running estimate, and the predicted fate.

What is remembered between steps travels with the algorithm's own state, under names that begin "noise/".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from peira.algorithms.fate import pass_rate, predict
from peira.algorithms.noise import informedness_from_appeals
from peira.config.algorithm import AppealsConfig, NoiseConfig
from peira.pipeline.appeals import Tally, hear_appeals
from peira.pipeline.score import Judge
from peira.types.scored import ScoredGroup

_COUNTS = ("accepted", "rejected", "appealed", "overturned")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseView:
    """What a step knows of its verifiers' errors."""

    false_positive_rates: Float[Tensor, "P G"]
    false_negative_rates: Float[Tensor, "P G"]
    remembered: dict[str, float]
    metrics: dict[str, float]


async def watch_noise(
    groups: Sequence[ScoredGroup],
    noise: NoiseConfig,
    second: Judge | None,
    remembered: Mapping[str, float],
    *,
    seed: int,
) -> NoiseView:
    """Rates of this step's rollouts; hear its appeals; move the prediction on by a step.

    The estimate that a step is corrected with is the one before it: a rate that a rollout had a part in would
    be correlated with its reward.
    """
    positive, negative = rate_tables(groups, noise, remembered.get("noise/false_negative_rate"))
    after = dict(remembered)
    metrics: dict[str, float] = {}
    if noise.appeals is not None:
        assert second is not None, "appeals are configured; the run has no second opinion"
        tally = await hear_appeals(groups, second, share=noise.appeals.share, seed=seed)
        after |= counted(remembered, tally, noise.appeals, noise.false_positive_rate)
        names = ("false_negative_rate", "informedness", "informedness_low", "informedness_high")
        metrics |= {f"noise/{n}": after[f"noise/{n}"] for n in names if f"noise/{n}" in after}
        metrics |= {"noise/appealed": tally.appealed, "noise/overturned": tally.overturned}
    if noise.drift_rate is not None:
        moved, share = predicted(groups, positive, negative, noise.drift_rate, remembered)
        after |= moved
        metrics |= share
    return NoiseView(
        false_positive_rates=positive, false_negative_rates=negative, remembered=after, metrics=metrics
    )


def rate_tables(
    groups: Sequence[ScoredGroup], noise: NoiseConfig, estimate: float | None
) -> tuple[Float[Tensor, "P G"], Float[Tensor, "P G"]]:
    """(false positive, false negative) rate of every rollout: its source's, else the estimate, else the one
    for all.

    An estimate is held where the verifier still points the right way by `min_gain`; beyond that no correction
    is valid, and the stop rule speaks.
    """
    by_source = {rates.source: rates for rates in noise.rates}
    rows = []
    for group in groups:
        own = by_source.get(group.task.source)
        if own is not None:
            pair = (own.false_positive_rate, own.false_negative_rate)
        elif estimate is not None:
            room = max(0.0, 1 - noise.false_positive_rate - noise.min_gain)
            pair = (noise.false_positive_rate, min(estimate, room))
        else:
            pair = (noise.false_positive_rate, noise.false_negative_rate)
        rows.append([pair] * len(group.rollouts))
    table = torch.tensor(rows)  # [P, G, 2]
    return table[:, :, 0], table[:, :, 1]


def counted(
    remembered: Mapping[str, float], tally: Tally, appeals: AppealsConfig, false_positive_rate: float
) -> dict[str, float]:
    """The running counts with this step's added, and the estimate that they give."""
    after = {
        f"noise/{name}": appeals.decay * remembered.get(f"noise/{name}", 0.0) + getattr(tally, name)
        for name in _COUNTS
    }
    after["noise/appeals_so_far"] = remembered.get("noise/appeals_so_far", 0.0) + tally.appealed
    found = informedness_from_appeals(
        **{name: after[f"noise/{name}"] for name in _COUNTS},
        false_positive_rate=false_positive_rate,
        confidence=appeals.confidence,
    )
    if found is not None:
        rate, estimate, low, high = found
        after["noise/false_negative_rate"] = rate
        after["noise/informedness"] = estimate
        after["noise/informedness_low"], after["noise/informedness_high"] = low, high
    return after


def predicted(
    groups: Sequence[ScoredGroup],
    positive: Float[Tensor, "P G"],
    negative: Float[Tensor, "P G"],
    rate: float,
    remembered: Mapping[str, float],
) -> tuple[dict[str, float], dict[str, float]]:
    """(what to remember, the predicted share of accepted rollouts of this step).

    The first step with a verdict is where the curve starts; from there on it looks at nothing but the rates.
    All prompts are taken as one with their mean.
    """
    rates = {
        "false_positive_rate": float(positive.double().mean()),
        "false_negative_rate": float(negative.double().mean()),
    }
    wrong = remembered.get("noise/predicted_wrong")
    if wrong is None:
        outcomes = [r.outcome for g in groups for r in g.rollouts if r.outcome is not None]
        if not outcomes:
            return {}, {}
        accepted = sum(outcome > 0.5 for outcome in outcomes) / len(outcomes)
        gain = 1 - rates["false_positive_rate"] - rates["false_negative_rate"]
        wrong = (1 - rates["false_negative_rate"] - accepted) / gain if abs(gain) > 1e-6 else 0.5
        wrong = min(max(wrong, 1e-3), 1 - 1e-3)
    share = pass_rate(wrong, **rates)
    size = len(groups[0].rollouts)
    (moved,) = predict(wrong, [1.0], **rates, rate=rate, group_size=size)
    moved = min(max(moved, 1e-9), 1 - 1e-9)
    return {"noise/predicted_wrong": moved}, {"noise/predicted_right_fraction": share}
