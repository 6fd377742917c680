"""FIPO: advantages weighted by where the policy is taking the rest of the sequence."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

MAX_LOG_RATIO = 20.0


def future_kl_weights(
    logprobs: Float[Tensor, "N T"],
    old_logprobs: Float[Tensor, "N T"],
    advantages: Float[Tensor, "N T"],
    mask: Bool[Tensor, "N T"],
    *,
    half_life_tokens: float,
    low: float,
    high: float,
    max_ratio: float,
    safety_ratio: float,
    safety: Literal["one", "cap"],
) -> Float[Tensor, "N T"]:
    """Factor on each token's advantage; detached; 1 everywhere while the policy is the old one.

    D_t = logprobs - old_logprobs; F_t = sum over k >= t of gamma^(k - t) * D_k, the current token included,
    with gamma = 2^(-1 / half_life_tokens) and tokens of ratio above `max_ratio` counted as 0; f =
    clip(exp(F), low, high). F is a discounted signed log-ratio, not a divergence. Where A < 0 and the
    token's own ratio exceeds `safety_ratio`, f is 1 ("one", the paper) or at most 1 and at least 0.8 ("cap",
    the released code).

    `old_logprobs` must be the learner's: a constant offset of the sampler's would add up to 1 / (1 - gamma)
    times itself. Sequences are scanned row by row; masked tokens add nothing, but time passes over them.

    Args:
        half_life_tokens: distance at which a future token counts half; 0 looks at the token alone.

    Source: arXiv:2603.19835 and its released code. Multiplying the advantage or the clipped loss by f is the
        same number, since both surrogates are homogeneous in A. The code's dropping of whole sequences with
        two dual-clipped tokens is not done here.
    """
    own = torch.where(mask, (logprobs - old_logprobs).detach(), 0.0).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = own.exp()
    counted = torch.where(ratio <= max_ratio, own, 0.0)
    gamma = 2.0 ** (-1.0 / half_life_tokens) if half_life_tokens > 0 else 0.0
    future, reach = counted, 1
    while reach < counted.shape[1]:  # sums over windows of 1, 2, 4, ... tokens
        beyond = torch.nn.functional.pad(future[:, reach:], (0, reach))
        future, reach = future + gamma**reach * beyond, 2 * reach
    factor = future.exp().clamp(low, high)
    risky = (torch.where(mask, advantages, 0.0) < 0) & (ratio > safety_ratio)
    safe = torch.ones_like(factor) if safety == "one" else factor.clamp(0.8, 1.0)
    return torch.where(mask, torch.where(risky, safe, factor), 1.0)
