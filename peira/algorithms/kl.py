"""Penalties for leaving a reference policy, and which divergence each of them descends.

With d = logprobs - reference_logprobs on tokens sampled from the policy:

    k1 = d        k2 = d^2 / 2        k3 = exp(-d) - 1 + d

k1 and k3 have the mean KL(policy || reference); k2 does not. But the gradient of a penalty *in the loss* is
not the gradient of its mean: the samples are held fixed, so only the part through the estimator is seen.

| in the loss, one step, on-policy | expected gradient |
|---|---|
| k1 | 0: pure noise, as if there were no penalty |
| k2 | that of KL(policy || reference), the reverse KL |
| k3 | that of KL(reference || policy), the forward KL; the form of the GRPO paper |

Per token in a sequence, each also misses what an early token does to later divergence.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Estimator = Literal["k1", "k2", "k3"]


def kl_penalty(
    logprobs: Float[Tensor, "N T"],
    reference_logprobs: Float[Tensor, "N T"],
    mask: Bool[Tensor, "N T"],
    *,
    estimator: Estimator,
    max_log_ratio: float | None = None,
) -> Float[Tensor, "N T"]:
    """Estimate of the KL to the reference, per token; see the module for what its gradient descends.

    Gradient flows through `logprobs` only. Exactly 0 where `mask` is False, whatever the inputs hold.

    Args:
        max_log_ratio: |d| is clamped to this many nats, which also removes the gradient beyond it. The value
            of k3 is never clamped: that would silence exactly the most forgotten tokens.

    Source: Schulman 2020, "Approximating KL divergence" (k1, k2, k3); Shao et al. 2024 (arXiv:2402.03300),
        eq. 4, for k3 in the loss; gradients by placement: arXiv:2512.21852 and our enumeration tests.
    """
    difference = torch.where(mask, logprobs - reference_logprobs.detach(), 0.0)
    if max_log_ratio is not None:
        difference = difference.clamp(-max_log_ratio, max_log_ratio)
    match estimator:
        case "k1":
            return difference
        case "k2":
            return difference.square() / 2
        case "k3":
            return torch.expm1(-difference) + difference
