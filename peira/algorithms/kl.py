"""Penalties for leaving a reference policy, and which divergence each of them descends.

With d = logprobs - reference_logprobs on tokens sampled from the policy:

    k1 = d        k2 = d^2 / 2        k3 = exp(-d) - 1 + d

k1 and k3 have the mean KL(policy || reference), called reverse here; k2 does not. But the gradient of that
mean has two parts, grad E[k] = E[grad k] + E[k * grad log policy], and each placement sees one of them: *in
the loss* the samples are held fixed and only the first remains, *in the reward* the estimate is a number and
only the second.

| placement, on-policy | expected gradient |
|---|---|
| k1 in the loss | 0: noise, as if there were no penalty |
| k2 in the loss | that of the reverse KL, per step |
| k3 in the loss | that of the forward KL(reference || policy), per step; the form of the GRPO paper |
| k1 in the reward, on the sequence or the return to go | that of the reverse KL, exactly |
| k2 in the reward | biased |
| k3 in the reward | reverse minus forward: no pull near the reference, a push away further out |
| k1 or k3 in both | that of the reverse KL, exactly |
| off-policy in the loss: ratio * k1, sg(ratio) * k2, ratio * k3 | that of the reverse KL, per step |

"Per step" forms miss what an early token does to later divergence, and weigh later positions by how often
the policy gets there. The tests enumerate every row of this table.
"""

from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from peira.algorithms.batch import TrainBatch

Estimator = Literal["k1", "k2", "k3"]
KLLevel = Literal["token", "return_to_go", "sequence"]
Divergence = Literal["reverse", "forward", "js"]
Generator = Literal["forward", "reverse", "js", "alpha"]


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


def kl_loss(
    logprobs: Float[Tensor, "N T"],
    batch: TrainBatch,
    *,
    coefficient: float,
    estimator: Estimator,
    off_policy: bool = False,
    max_log_ratio: float | None = None,
    other_coefficients: tuple[float, ...] = (),
) -> Float[Tensor, "N T"]:
    """coefficient * estimate, per token, as a `TokenLoss`; it acts on clipped tokens too.

    With `off_policy` the estimate is multiplied by the ratio to the old policy, through which gradient flows
    (for k2 it does not): the mean is then that of the current policy, and so is the gradient.

    Args:
        other_coefficients: one per column of `batch.other_reference_logprobs`; the penalties add up.

    Source: DeepSeek-V3.2's ratio * k3, read through TRL's documentation.
    """
    assert batch.reference_logprobs is not None, "the algorithm says needs_reference; the batch has none"
    references = [batch.reference_logprobs]
    if other_coefficients:
        assert batch.other_reference_logprobs is not None, "other coefficients, but no log-probs"
        references += list(batch.other_reference_logprobs.unbind(dim=2))
    total = torch.zeros_like(logprobs)
    for weight, reference in zip((coefficient, *other_coefficients), references, strict=True):
        penalty = kl_penalty(
            logprobs, reference, batch.mask, estimator=estimator, max_log_ratio=max_log_ratio
        )
        if off_policy:
            ratio = torch.where(batch.mask, logprobs - batch.old_logprobs.detach(), 0.0).exp()
            penalty = penalty * (ratio.detach() if estimator == "k2" else ratio)
        total = total + weight * penalty
    return total


def kl_in_reward(
    batch: TrainBatch,
    *,
    coefficient: float,
    estimator: Estimator,
    level: KLLevel,
    max_log_ratio: float | None = None,
) -> TrainBatch:
    """The batch with -coefficient * KL estimate added to its advantages, which are standardised already.

    The estimate is of the old policy, detached, and fixed for every update on the batch. "sequence" gives
    every token of a row the row's sum, compared with the mean of its siblings' sums; "return_to_go" gives
    each token what follows, itself included; "token" its own alone (which is not the gradient of the
    sequence's KL).

    Added before a division by the group's standard deviation, the penalty would be standardised too: in a
    group of equal rewards the coefficient cancels, and any KL at all has full strength. Hence after it.
    """
    assert batch.reference_logprobs is not None, "the algorithm says needs_reference; the batch has none"
    penalty = kl_penalty(
        batch.old_logprobs.detach(),
        batch.reference_logprobs,
        batch.mask,
        estimator=estimator,
        max_log_ratio=max_log_ratio,
    )
    match level:
        case "token":
            spread = penalty
        case "return_to_go":
            spread = penalty.flip(1).cumsum(dim=1).flip(1)
        case "sequence":
            row = penalty.sum(dim=1)
            names, own = batch.group.unique(return_inverse=True)
            totals = row.new_zeros(len(names)).index_add(0, own, row)
            siblings = own.bincount(minlength=len(names))[own] - 1
            others = (totals[own] - row) / siblings.clamp(min=1)
            spread = (row - torch.where(siblings > 0, others, 0.0))[:, None].expand_as(penalty)
    advantages = batch.advantages - coefficient * spread
    return replace(batch, advantages=torch.where(batch.mask, advantages, 0.0))


def vocabulary_kl(
    logprobs: Float[Tensor, "N T V"],
    reference_logprobs: Float[Tensor, "N T V"],
    *,
    divergence: Divergence,
) -> Float[Tensor, "N T"]:
    """Exact divergence between next-token distributions, over the whole vocabulary; gradient to `logprobs`.

    reverse = KL(policy || reference), forward = KL(reference || policy), js = Jensen-Shannon: the mean KL of
    both to their half-half mixture. Both arguments are normalised log-probs; -inf marks impossible tokens.
    """
    reference = reference_logprobs.detach()
    match divergence:
        case "reverse":
            return _kl(logprobs, reference)
        case "forward":
            return _kl(reference, logprobs)
        case "js":
            mixture = torch.logaddexp(logprobs, reference) - torch.log(torch.tensor(2.0))
            return (_kl(logprobs, mixture) + _kl(reference, mixture)) / 2


def _kl(of: Float[Tensor, "N T V"], to: Float[Tensor, "N T V"]) -> Float[Tensor, "N T"]:
    possible = of > -torch.inf
    return torch.where(possible, of.exp() * torch.where(possible, of - to, 0.0), 0.0).sum(dim=-1)


def anchor_divergence(
    logprobs: Float[Tensor, "N T"],
    reference_logprobs: Float[Tensor, "N T"],
    mask: Bool[Tensor, "N T"],
    *,
    generator: Generator,
    alpha: float = 0.2,
    max_log_ratio: float | None = None,
) -> Float[Tensor, "N T"]:
    """f(u) per token of *samples of the reference*, u = policy / reference; its mean is the f-divergence.

    | generator | f(u) | divergence |
    |---|---|---|
    | forward | u - 1 - log u | KL(reference || policy) |
    | reverse | u log u + 1 - u | KL(policy || reference) |
    | js | u log u - (u + 1) log((u + 1) / 2) | twice Jensen-Shannon |
    | alpha | (u^(1 - a) - (1 - a) u - a) / (a (a - 1)) | towards forward as a -> 1, reverse as a -> 0 |

    No reference model is needed in the loop: log-probs of the anchors are taken once, by the learner's own
    forward pass. There is no ratio, no clip, no advantage. Summed over tokens, forward is the sequence's KL
    in expectation; js and alpha have no chain rule, so their sum is not the sequence's divergence.

    Source: DPH-RL, arXiv:2509.07430 and its released code; the table of gradients is ours.
    """
    log_u = torch.where(mask, logprobs - reference_logprobs.detach(), 0.0)
    if max_log_ratio is not None:
        log_u = log_u.clamp(-max_log_ratio, max_log_ratio)
    u = log_u.exp()
    match generator:
        case "forward":
            return torch.expm1(log_u) - log_u
        case "reverse":
            return u * log_u - torch.expm1(log_u)
        case "js":
            return u * log_u - (u + 1) * torch.log1p(torch.expm1(log_u) / 2)
        case "alpha":
            power = torch.expm1((1 - alpha) * log_u)  # u^(1 - a) - 1: exactly 0 at u = 1
            return (power - (1 - alpha) * torch.expm1(log_u)) / (alpha * (alpha - 1))


def anchor_loss(
    logprobs: Float[Tensor, "N T"],
    batch: TrainBatch,
    *,
    coefficient: float,
    generator: Generator,
    alpha: float = 0.2,
    max_log_ratio: float | None = None,
) -> Float[Tensor, "N T"]:
    """`anchor_divergence` as the `TokenLoss` of a batch of anchors; its weights average over them."""
    assert batch.reference_logprobs is not None, "anchors carry the reference's log-probs"
    divergence = anchor_divergence(
        logprobs,
        batch.reference_logprobs,
        batch.mask,
        generator=generator,
        alpha=alpha,
        max_log_ratio=max_log_ratio,
    )
    return coefficient * divergence
