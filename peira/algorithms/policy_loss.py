"""Per-token policy losses, and the weights that average them over a batch."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Average = Literal["sequence_mean", "sequence_sum", "token_mean", "constant"]


def clipped_surrogate(
    logprobs: Float[Tensor, "N T"],
    old_logprobs: Float[Tensor, "N T"],
    advantages: Float[Tensor, "N T"],
    mask: Bool[Tensor, "N T"],
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> Float[Tensor, "N T"]:
    """PPO surrogate per token: -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A).

    ratio = exp(logprobs - old_logprobs). Gradient flows through `logprobs` only. Where `mask` is False, loss
    and gradient are exactly 0 whatever the inputs hold, NaN included. With one update per rollout the ratio
    is 1 and nothing is ever clipped.

    Args:
        dual_clip: for negative advantages, the loss is held at or below dual_clip * |A|, with gradient 0
            beyond; above 1. None leaves it unbounded.

    Source: Schulman et al. 2017 (arXiv:1707.06347), eq. 7; separate bounds: Yu et al. 2025
        (arXiv:2503.14476), section 3.1; dual clip: Ye et al. 2020 (arXiv:1912.09729).
    """
    log_ratio = torch.where(mask, logprobs - old_logprobs.detach(), 0.0)
    advantages = torch.where(mask, advantages.detach(), 0.0)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    surrogate = torch.minimum(ratio * advantages, clipped * advantages)
    if dual_clip is not None:
        floor = torch.where(advantages < 0, dual_clip * advantages, -torch.inf)
        surrogate = torch.maximum(surrogate, floor)
    return -surrogate


def sequence_surrogate(
    logprobs: Float[Tensor, "N T"],
    old_logprobs: Float[Tensor, "N T"],
    advantages: Float[Tensor, "N T"],
    mask: Bool[Tensor, "N T"],
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> Float[Tensor, "N T"]:
    """GSPO: the clipped surrogate with one ratio per sequence, the geometric mean of its token ratios.

    s = exp(mean over the row of (logprobs - old_logprobs)). Each token carries sg(s) * exp(logprob -
    sg(logprob)), whose value is s and whose gradient is s * A by its own log-prob: advantages may differ by
    token, and with average = "sequence_mean" the gradient is that of the sequence form. Bounds are about a
    thousand times tighter than for token ratios (3e-4 and 4e-4 in the paper). Rows must be whole.

    Source: Zheng et al. 2025 (arXiv:2507.18071), sections 4.1 and 4.3; read through library documentation.
    """
    log_ratio = torch.where(mask, (logprobs - old_logprobs).detach(), 0.0)
    count = mask.sum(dim=1, keepdim=True).clamp(min=1)
    sequence = log_ratio.sum(dim=1, keepdim=True) / count  # [N, 1]
    own = torch.where(mask, logprobs, 0.0)
    return clipped_surrogate(
        sequence + (own - own.detach()),
        torch.zeros_like(own),
        advantages,
        mask,
        clip_low=clip_low,
        clip_high=clip_high,
        dual_clip=dual_clip,
    )


def clipped_weight_loss(
    logprobs: Float[Tensor, "N T"],
    old_logprobs: Float[Tensor, "N T"],
    advantages: Float[Tensor, "N T"],
    mask: Bool[Tensor, "N T"],
    *,
    clip_low: float,
    clip_high: float,
) -> Float[Tensor, "N T"]:
    """CISPO: -sg(clip(ratio, 1 - clip_low, 1 + clip_high)) * A * logprob; no token ever loses its gradient.

    The value is not the objective's (it depends on the log-prob itself); the gradient is what it is for. With
    clip_low = 1 there is no lower bound, as in the paper. Against the sampler's log-probs as old ones this is
    REINFORCE with a truncated importance weight per token.

    Bounds here are 1 - clip_low and 1 + clip_high. TRL clamps at its `epsilon_high` itself, so its 5.0 is our
    clip_high = 4.0 with clip_low = 1.

    Source: MiniMax 2025 (arXiv:2506.13585), section 3.1; read through library documentation.
    """
    log_ratio = torch.where(mask, (logprobs - old_logprobs).detach(), 0.0)
    weight = log_ratio.exp().clamp(1.0 - clip_low, 1.0 + clip_high)
    return -weight * torch.where(mask, advantages.detach(), 0.0) * torch.where(mask, logprobs, 0.0)


def score_function_loss(
    logprobs: Float[Tensor, "N T"],
    old_logprobs: Float[Tensor, "N T"],
    advantages: Float[Tensor, "N T"],
    mask: Bool[Tensor, "N T"],
) -> Float[Tensor, "N T"]:
    """REINFORCE: -A * logprob, without ratio or clip; old log-probs are not read.

    Right for one update per rollout; later updates on the same rollouts are biased, and nothing bounds them.

    Source: Williams 1992, "Simple statistical gradient-following algorithms".
    """
    return -torch.where(mask, advantages.detach(), 0.0) * torch.where(mask, logprobs, 0.0)


def off_policy_rows(
    logprobs: Float[Tensor, "N T"],
    old_logprobs: Float[Tensor, "N T"],
    advantages: Float[Tensor, "N T"],
    mask: Bool[Tensor, "N T"],
    *,
    max_drop: float,
) -> Bool[Tensor, "N T"]:
    """The mask without rows that are bad and that the policy has already left.

    A row is dropped when its advantages are negative and mean(old_logprobs - logprobs) exceeds `max_drop`
    nats: pushing it down further is a large step in a direction the policy no longer samples. Multiply the
    loss by it; the denominators stay.

    Source: DeepSeek-V3.2's off-policy sequence mask, read through TRL's documentation (suggested 0.5).
    """
    drop = torch.where(mask, (old_logprobs - logprobs).detach(), 0.0).sum(dim=1, keepdim=True)
    drop = drop / mask.sum(dim=1, keepdim=True).clamp(min=1)
    bad = torch.where(mask, advantages, 0.0).sum(dim=1, keepdim=True) < 0
    return mask & ~(bad & (drop > max_drop))


def token_weights(
    mask: Bool[Tensor, "N T"],
    *,
    average: Average,
    max_tokens: int,
    count_dead: bool,
    dead_sequences: int = 0,
    dead_tokens: int = 0,
) -> Float[Tensor, "N T"]:
    """Weights such that the batch loss is (weights * token_loss).sum().

    Computed once, on the whole batch, before it is cut into micro-batches or spread over ranks; neither cut
    can then change the gradient. N here is the number of rollouts that the formula divides by:

    * "sequence_mean": each sequence's mean over its tokens, then the mean over N (DeepSeekMath's GRPO).
    * "sequence_sum": each sequence's sum, then the mean over N (REINFORCE, RLOO).
    * "token_mean": the sum over all tokens divided by their number (DAPO).
    * "constant": the sum over all tokens divided by N * max_tokens, so without length bias (Dr. GRPO).

    Rollouts of groups without a signal need no forward pass and are left out of `mask`, but whether they
    count is a convention that changes the step size. With `count_dead` they do: N and the token count
    include them, as in the papers' formulas, and a batch that is half dead makes half the step. Without it
    the average runs over what is trained on, and the live groups share the whole step (a batch with one live
    group of four makes four times the gradient). A row whose mask is all False counts towards N either way.

    Args:
        dead_sequences: rollouts left out of `mask` because their group has no signal.
        dead_tokens: tokens the policy generated in them.

    Source: average modes as in Shao et al. 2024 (arXiv:2402.03300), Yu et al. 2025 (arXiv:2503.14476),
        Liu et al. 2025 (arXiv:2503.20783).
    """
    kept = mask.float()
    num_sequences = max(1, mask.shape[0] + (dead_sequences if count_dead else 0))
    match average:
        case "sequence_mean":
            return kept / kept.sum(dim=1, keepdim=True).clamp(min=1.0) / num_sequences
        case "sequence_sum":
            return kept / num_sequences
        case "token_mean":
            num_tokens = int(mask.sum()) + (dead_tokens if count_dead else 0)
            return kept / max(1, num_tokens)
        case "constant":
            return kept / (num_sequences * max_tokens)
