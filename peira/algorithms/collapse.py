"""Remedies for groups without spread, and the one order in which everything on [P, G] happens.

    correct noise -> estimate (per group or channel) -> whiten over the step -> repair what is still collapsed

What stays 0 after that is dead: it is dropped from the loss. Repair comes last because it pushes all members
of a group the same way: any later centring subtracts that push from the others and can flip the sign of
theirs.

Collapse is decided on the verifier's outcomes, not on shaped rewards: a group in which everybody earned a
format bonus is all wrong, and must not be reinforced.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from peira.algorithms.advantage import has_spread, whiten
from peira.algorithms.family import AdvantageFunction, StepContext
from peira.errors import DataError

RewardMap = Callable[[Float[Tensor, "P G"], StepContext], Float[Tensor, "P G"]]
"""(rewards, context) -> rewards with the verifier's noise accounted for."""
Repair = Callable[[Float[Tensor, "P G"], Bool[Tensor, "P G"], StepContext], Float[Tensor, "P G"]]
"""(advantages, judged, context) -> advantages; members of mixed groups keep theirs."""
Scope = Literal["step", "window", "average"]


def staged_advantages(
    rewards: Float[Tensor, "P G"],
    judged: Bool[Tensor, "P G"],
    *,
    estimate: AdvantageFunction,
    correct: RewardMap | None = None,
    whitening: Repair | None = None,
    repair: Repair | None = None,
    context: StepContext | None = None,
) -> Float[Tensor, "P G"]:
    """The stages of this module, in their order; an `AdvantageFunction` once the keywords are bound."""
    context = StepContext() if context is None else context
    if correct is not None:
        rewards = correct(rewards, context)
    advantages = estimate(rewards, judged, context=context)
    if whitening is not None:
        advantages = whitening(advantages, judged, context)
    if repair is not None:
        advantages = repair(advantages, judged, context)
    return advantages


def whitened(
    advantages: Float[Tensor, "P G"],
    judged: Bool[Tensor, "P G"],
    context: StepContext,
    *,
    over: Literal["rollouts", "tokens"],
    eps: float,
    hold_dead: bool,
) -> Float[Tensor, "P G"]:
    """`advantage.whiten` as a stage."""
    return whiten(advantages, judged, over=over, eps=eps, hold_dead=hold_dead, num_tokens=context.num_tokens)


def flat_groups(outcomes: Float[Tensor, "P G"], judged: Bool[Tensor, "P G"]) -> Bool[Tensor, "P"]:
    """Groups that a repair may act on: two or more judged members, all with the same outcome."""
    return ~has_spread(outcomes, judged) & (judged.sum(dim=1) >= 2)


def collapse_rate(outcomes: Float[Tensor, "P G"], judged: Bool[Tensor, "P G"]) -> float:
    """Share of collapsed groups among those with two or more judged members; 0 when there are none.

    Source: arXiv:2605.21125 (ACR); leaving out what was not judged is ours.
    """
    comparable = judged.sum(dim=1) >= 2
    if not comparable.any():
        return 0.0
    return float(flat_groups(outcomes, judged)[comparable].double().mean())


def virtual_rewards(observed: float, count: int, *, anchor: float) -> list[float]:
    """AVSPO's imagined rewards for a group that all got `observed`: a ladder below it, or above 0.

    Source: arXiv:2605.21125 v2, read in two agreeing notes; an earlier draft has a ladder that leaves
        all-wrong groups dead, and the released code a single virtual reward.
    """
    if observed > 0:
        return [observed * (1 - k / (count + 1)) for k in range(1, count + 1)]
    return [anchor * (count - k + 1) / count for k in range(1, count + 1)]


def num_virtual(group_size: int, rate: float, *, exponent: float) -> int:
    """max(1, min(G, ceil(G * rate^exponent)))."""
    return max(1, min(group_size, math.ceil(group_size * math.pow(rate, exponent) - 1e-9)))


def avspo_constant(group_size: int, count: int) -> float:
    """The one advantage that AVSPO gives every member of a collapsed group, up to its sign.

    1 / sqrt((G + K) * 2 (2K + 1) / (3 K (K + 1)) - 1) with the population std and no eps: the anchor's size
    does not matter, and it never exceeds sqrt(K / G). Our derivation.
    """
    g, k = group_size, count
    return 1 / math.sqrt((g + k) * 2 * (2 * k + 1) / (3 * k * (k + 1)) - 1)


def avspo_repair(
    advantages: Float[Tensor, "P G"],
    judged: Bool[Tensor, "P G"],
    context: StepContext,
    *,
    exponent: float,
    anchor: float,
    initial_trigger: float,
    scope: Scope,
    window_steps: int,
    decay: float,
    sample_std: bool,
    eps: float,
) -> Float[Tensor, "P G"]:
    """AVSPO: give collapsed groups the advantage they would have beside a few imagined rewards.

    Acts when the collapse rate exceeds the trigger that `avspo_observe` adapts. Every member of a collapsed
    group gets the same number, +c when all got something and -c when nobody did; it amounts to the sign of
    the outcome times a constant (`avspo_constant`). Imagined rewards carry no log-prob: the shape stays [P,
    G].

    Args:
        exponent: of the collapse rate in the number of imagined rewards.
        anchor: the largest imagined reward of an all-wrong group; matters only through eps.
        scope: collapse rate of this step, of the last `window_steps`, or its running average with `decay`.
            With one group per step it is 0 or 1 and nothing adapts.

    Source: arXiv:2605.21125; see `virtual_rewards`. Scopes are ours: no source says which is meant.
    """
    outcomes = _outcomes(context, judged)
    rate = _scoped_rate(outcomes, judged, context, scope=scope, window_steps=window_steps, decay=decay)
    if rate <= context.state.get("avspo/trigger", initial_trigger):
        return advantages
    repaired = advantages.clone()
    for p in flat_groups(outcomes, judged).nonzero().flatten().tolist():
        real = outcomes[p][judged[p]].double()
        count = num_virtual(real.numel(), rate, exponent=exponent)
        imagined = virtual_rewards(float(real.max()), count, anchor=anchor)
        both = torch.cat([real, real.new_tensor(imagined)])
        std = both.std(correction=int(sample_std))
        value = (real - both.mean()) / (std + eps)
        repaired[p, judged[p]] = value.to(repaired.dtype)
    return repaired


def avspo_observe(
    rewards: Float[Tensor, "P G"],
    judged: Bool[Tensor, "P G"],
    *,
    context: StepContext,
    rate_step: float,
    initial_trigger: float,
    lowest_trigger: float,
    highest_trigger: float,
    scope: Scope,
    window_steps: int,
    decay: float,
) -> dict[str, float]:
    """Move the trigger towards the collapse rate while outcomes improve, away from it while they fall.

    trigger += rate_step * sign(J - previous J) * (rate - trigger), held within its bounds; J is the mean
    outcome of the step's judged rollouts.

    Source: arXiv:2605.21125; J is not defined there, bounds are from an earlier draft.
    """
    outcomes = _outcomes(context, judged)
    state = dict(context.state)
    rate = _scoped_rate(outcomes, judged, context, scope=scope, window_steps=window_steps, decay=decay)
    trigger = state.get("avspo/trigger", initial_trigger)
    if judged.any():
        progress = float(outcomes[judged].double().mean())
        change = progress - state.get("avspo/progress", progress)
        trigger += rate_step * ((change > 0) - (change < 0)) * (rate - trigger)
        state["avspo/progress"] = progress
    state["avspo/trigger"] = min(max(trigger, lowest_trigger), highest_trigger)
    state["avspo/average"] = rate
    own = collapse_rate(outcomes, judged)
    past = [state.get(f"avspo/rate_{i}") for i in range(window_steps - 2)]
    state |= {f"avspo/rate_{i}": r for i, r in enumerate([own, *past][: window_steps - 1]) if r is not None}
    return state


def sign_repair(
    advantages: Float[Tensor, "P G"],
    judged: Bool[Tensor, "P G"],
    context: StepContext,
    *,
    magnitude: float,
) -> Float[Tensor, "P G"]:
    """Collapsed groups get +magnitude when their outcome exceeds one half, else -magnitude.

    The control for AVSPO: at the same magnitude the two must be indistinguishable.
    """
    outcomes = _outcomes(context, judged)
    flat = flat_groups(outcomes, judged).unsqueeze(1) & judged
    return torch.where(flat, torch.where(outcomes > 0.5, magnitude, -magnitude), advantages)


def zero_variance_advantages(
    entropy: Float[Tensor, "N T"],
    mask: Bool[Tensor, "N T"],
    right: Bool[Tensor, "N"],
    *,
    coefficient: float,
) -> Float[Tensor, "N T"]:
    """RL-ZVP: token advantages for rows of collapsed groups, from the policy's entropy (detached, in nats).

    All right: coefficient * H_t. All wrong: -coefficient * (max over the row of H - H_t), so that the token
    at which the policy hesitated most is blamed least.

    Source: arXiv:2509.21880 (abstract; the equation through third-party code, which does not give the
        coefficient).
    """
    own = torch.where(mask, entropy.detach(), 0.0)
    highest = own.amax(dim=1, keepdim=True) if own.shape[1] else own
    value = torch.where(right[:, None], own, own - highest)
    return torch.where(mask, coefficient * value, 0.0)


def _outcomes(context: StepContext, judged: Bool[Tensor, "P G"]) -> Float[Tensor, "P G"]:
    outcomes = context.need("outcomes", "repairing collapsed groups")
    known = outcomes[judged]
    if not ((known >= 0) & (known <= 1)).all():
        raise DataError(
            "outcomes: repairing collapsed groups needs values in [0, 1]: which end is right would be a guess"
        )
    return outcomes


def _scoped_rate(
    outcomes: Float[Tensor, "P G"],
    judged: Bool[Tensor, "P G"],
    context: StepContext,
    *,
    scope: Scope,
    window_steps: int,
    decay: float,
) -> float:
    own = collapse_rate(outcomes, judged)
    match scope:
        case "step":
            return own
        case "window":
            past = [context.state.get(f"avspo/rate_{i}") for i in range(window_steps - 1)]
            known = [own, *(rate for rate in past if rate is not None)]
            return sum(known) / len(known)
        case "average":
            return decay * context.state.get("avspo/average", own) + (1 - decay) * own
