"""What a step looked like, as plain numbers: collapse by kind, clipping, KL, entropy, mismatch, lengths.

Every function takes detached tensors and returns {metric name: float}; the names are listed with unit and
meaning in `runs/metrics.py`. A quantity without a value in this step (a mean over no tokens) is left out
rather than reported as 0.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from peira.algorithms.advantage import has_spread
from peira.algorithms.kl import kl_penalty
from peira.algorithms.ratio import Level, log_gap

CollapseKind = Literal["none", "unjudged", "all_right", "truncated", "duplicate", "all_wrong"]
KINDS: tuple[CollapseKind, ...] = ("none", "unjudged", "all_right", "truncated", "duplicate", "all_wrong")


def collapse_kinds(
    outcomes: Float[Tensor, "P G"],
    judged: Bool[Tensor, "P G"],
    *,
    truncated: Bool[Tensor, "P G"],
    duplicate: Bool[Tensor, "P G"],
    right: float = 1.0,
) -> Int[Tensor, "P"]:
    """Why each group has no signal, as an index into `KINDS`; exactly one kind per group.

    In this order, the first that holds: "none" (the judged outcomes differ); "unjudged" (fewer than two
    members were judged: look at the verifier); "all_right" (every judged outcome reaches `right`: finished);
    "truncated" (every judged member was cut off: raise the token budget); "duplicate" (one completion, G
    times: entropy is gone); "all_wrong" (too hard; also equal partial credit).

    Args:
        outcomes: the reward before length penalties and the like, which hide collapse.
        duplicate: whether a member has the same tokens as an earlier one of its group.
        right: the outcome of a right answer.
    """
    rules: list[tuple[CollapseKind, Tensor]] = [
        ("duplicate", duplicate.sum(dim=1) == duplicate.shape[1] - 1),
        ("truncated", (truncated | ~judged).all(dim=1)),
        ("all_right", torch.where(judged, outcomes, torch.inf).amin(dim=1) >= right),
        ("unjudged", judged.sum(dim=1) < 2),
        ("none", has_spread(outcomes, judged)),
    ]
    kinds = torch.full_like(judged[:, 0], KINDS.index("all_wrong"), dtype=torch.int64)
    for name, holds in rules:  # from the last resort to the first: the later rule wins
        kinds = torch.where(holds, KINDS.index(name), kinds)
    return kinds


def group_metrics(
    outcomes: Float[Tensor, "P G"],
    rewards: Float[Tensor, "P G"],
    judged: Bool[Tensor, "P G"],
    advantages: Float[Tensor, "P G"],
    *,
    truncated: Bool[Tensor, "P G"],
    duplicate: Bool[Tensor, "P G"],
    right: float = 1.0,
) -> dict[str, float]:
    """Rewards, and collapse counted twice: by the outcomes, and by the advantages that are really used.

    `advantage/collapsed_fraction` and its five kinds are shares of all groups and add up.
    `advantage/dead_fraction` counts groups whose advantages are all 0 after every repair; a repair lowers it
    and leaves the first alone.
    """
    kinds = collapse_kinds(outcomes, judged, truncated=truncated, duplicate=duplicate, right=right)
    metrics = {
        "reward/judged_fraction": _mean(judged),
        "advantage/collapsed_fraction": _mean(kinds != KINDS.index("none")),
        "advantage/dead_fraction": _mean((advantages == 0).all(dim=1)),
        "advantage/abs_mean": _mean(advantages.abs()),
        "rollout/duplicate_fraction": _mean(duplicate),
    }
    for index, kind in enumerate(KINDS[1:], start=1):
        metrics[f"advantage/{kind}_fraction"] = _mean(kinds == index)
    if judged.any():
        known = rewards[judged]
        metrics |= {
            "reward/mean": _mean(known),
            "reward/std": float(known.double().std(correction=0)),
            "reward/outcome_mean": _mean(outcomes[judged]),
            "reward/right_fraction": _mean(outcomes[judged] >= right),
        }
    return metrics


def length_metrics(num_tokens: Int[Tensor, "N"], truncated: Bool[Tensor, "N"]) -> dict[str, float]:
    """Generated tokens per rollout, and the share that was cut off."""
    metrics = {"rollout/truncated_fraction": _mean(truncated)}
    if num_tokens.numel():
        metrics |= {
            "rollout/tokens_mean": _mean(num_tokens),
            "rollout/tokens_max": float(num_tokens.max()),
            "rollout/tokens_min": float(num_tokens.min()),
        }
    if (~truncated).any():
        metrics["rollout/finished_tokens_mean"] = _mean(num_tokens[~truncated])
    return metrics


def policy_metrics(
    logprobs: Float[Tensor, "N T"],
    old_logprobs: Float[Tensor, "N T"],
    advantages: Float[Tensor, "N T"],
    mask: Bool[Tensor, "N T"],
    *,
    entropy: Float[Tensor, "N T"],
    clip_low: float,
    clip_high: float,
    level: Literal["token", "sequence"] = "token",
    reference_logprobs: Float[Tensor, "N T"] | None = None,
    other_reference_logprobs: Float[Tensor, "N T R"] | None = None,
) -> dict[str, float]:
    """How far the policy is from where the batch began, and from the reference; means over trained tokens.

    A token is counted as clipped where clipping removes its gradient: ratio above 1 + clip_high with a
    positive advantage, or below 1 - clip_low with a negative one.

    Args:
        level: "sequence" compares the geometric mean of a row's ratios with the bounds, as GSPO does.
    """
    if not mask.any():
        return {}
    log_ratio = (logprobs - old_logprobs)[mask].double()
    clipped = log_ratio
    if level == "sequence":
        clipped = log_gap(logprobs, old_logprobs, mask, level="sequence_geometric")[mask].double()
    ratio, held, signs = log_ratio.exp(), clipped.exp(), advantages[mask]
    metrics = {
        "policy/entropy": _mean(entropy[mask]),
        "policy/clipped_low_fraction": _mean((held < 1 - clip_low) & (signs < 0)),
        "policy/clipped_high_fraction": _mean((held > 1 + clip_high) & (signs > 0)),
        "policy/kl_old": _mean(torch.expm1(log_ratio) - log_ratio),  # k3 of old -> new, sampled from old
        "policy/ratio_max": float(ratio.max()),
        "policy/ratio_min": float(ratio.min()),
    }
    if reference_logprobs is not None:
        difference = (logprobs - reference_logprobs)[mask].double()
        row, every = difference.unsqueeze(0), torch.ones_like(difference, dtype=torch.bool).unsqueeze(0)
        metrics |= {
            "policy/kl_reference_k1": _mean(difference),
            "policy/kl_reference_k3": _mean(kl_penalty(row, torch.zeros_like(row), every, estimator="k3")),
            "policy/reference_ratio_max": float((-difference).exp().max()),
        }
    if other_reference_logprobs is not None:
        gaps = (other_reference_logprobs - logprobs[:, :, None])[mask].double()  # [tokens, R]
        k3 = (torch.expm1(gaps) - gaps).mean(dim=0).tolist()
        metrics |= {f"policy/kl_other_k3/{number}": value for number, value in enumerate(k3, start=1)}
    return metrics


def mismatch_metrics(
    old_logprobs: Float[Tensor, "N T"],
    sampling_logprobs: Float[Tensor, "N T"],
    mask: Bool[Tensor, "N T"],
    *,
    weights: Float[Tensor, "N T"] | None = None,
    level: Level = "token",
) -> dict[str, float]:
    """How far the learner is from the sampler that drew the tokens, before the first update.

    l = old_logprobs - sampling_logprobs. `mismatch/kl` is the mean of exp(l) - 1 - l, the unbiased estimate
    of KL(sampler || learner); `mismatch/effective_fraction` is the effective sample size
    of the weights exp(l) over the number of tokens: 1 when both agree. Summed in float64.

    Args:
        weights: the batch's mismatch weights, not normalised; with them the share of tokens that were capped
            or masked is counted.
        level: of those weights.
    """
    if not mask.any():
        return {}
    metrics = {}
    if weights is not None:
        whole = log_gap(old_logprobs, sampling_logprobs, mask, level=level).exp()
        metrics["mismatch/capped_fraction"] = _mean((weights < 0.999 * whole)[mask])
    gap = (old_logprobs - sampling_logprobs)[mask].double()
    ratio = gap.exp()
    return metrics | {
        "mismatch/kl": _mean(torch.expm1(gap) - gap),
        "mismatch/logprob_gap_mean": _mean(gap.abs()),
        "mismatch/logprob_gap_max": float(gap.abs().max()),
        "mismatch/chi_square": _mean(ratio.square()) - 1,
        "mismatch/effective_fraction": float(ratio.sum().square() / ratio.square().sum() / ratio.numel()),
    }


def _mean(values: Tensor) -> float:
    return float(values.double().mean()) if values.numel() else 0.0
