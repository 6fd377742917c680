"""From rewards of reasoning steps or turns to advantages of tokens."""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from peira.algorithms.advantage import FLAT, Scale


def step_advantages(
    step_rewards: Float[Tensor, "N S"],
    step_mask: Bool[Tensor, "N S"],
    group: Int[Tensor, "N"],
    *,
    scale: Scale,
    eps: float,
) -> Float[Tensor, "N S"]:
    """(reward - mean) / (std + eps) over *all* steps of all rollouts of a group; 0 where there is no step.

    Rows of a group have the same number in `group`. A group whose steps all have one reward gets exactly 0,
    and so does a group with a single step.

    Source: Shao et al. 2024 (arXiv:2402.03300), section 4.1.3.
    """
    result = torch.zeros_like(step_rewards)
    for name in group.unique():
        rows = (group == name)[:, None] & step_mask
        known = step_rewards[rows]
        if known.numel() < 2 or known.max() - known.min() <= FLAT:
            continue
        centred = known - known.mean()
        match scale:
            case "none":
                value = centred
            case "population_std":
                value = centred / (known.std(correction=0) + eps)
            case "sample_std":
                value = centred / (known.std(correction=1) + eps)
        result[rows] = value
    return result


def token_credit(
    step_values: Float[Tensor, "N S"],
    step_ends: Int[Tensor, "N S"],
    step_mask: Bool[Tensor, "N S"],
    mask: Bool[Tensor, "N T"],
    *,
    reach: Literal["to_go", "own"],
) -> Float[Tensor, "N T"]:
    """Step values on tokens: "to_go" adds up what ends at a token or later, "own" gives its own step's.

    Args:
        step_ends: column of each step's last token. Tokens behind a row's last step get 0.

    Source: Shao et al. 2024 (arXiv:2402.03300), section 4.1.3, for "to_go".
    """
    columns = torch.arange(mask.shape[1], device=mask.device)
    covers = (step_ends[:, :, None] >= columns) & step_mask[:, :, None]  # [N, S, T]
    values = torch.where(step_mask, step_values, 0.0)[:, :, None]
    if reach == "to_go":
        credit = (covers * values).sum(dim=1)
    else:
        far = torch.where(covers, step_ends[:, :, None] - columns, mask.shape[1] + 1)  # [N, S, T]
        if far.shape[1] == 0:
            return torch.zeros_like(mask, dtype=step_values.dtype)
        nearest = far == far.amin(dim=1, keepdim=True)
        credit = (nearest & covers).to(values.dtype).mul(values).sum(dim=1)
    return torch.where(mask, credit, 0.0)


def step_credit(
    step_rewards: Float[Tensor, "N S"],
    step_mask: Bool[Tensor, "N S"],
    step_ends: Int[Tensor, "N S"],
    group: Int[Tensor, "N"],
    mask: Bool[Tensor, "N T"],
    *,
    scale: Scale,
    eps: float,
    reach: Literal["to_go", "own"],
    coefficient: float,
) -> Float[Tensor, "N T"]:
    """`step_advantages` on tokens, times a coefficient: what process supervision adds to their advantages."""
    values = step_advantages(step_rewards, step_mask, group, scale=scale, eps=eps)
    return coefficient * token_credit(values, step_ends, step_mask, mask, reach=reach)
