"""Policies small enough to train thousands of times: a table of logits, many copies at once.

Shape letters: S copies (seeds), P prompts, G rollouts per prompt, V arms (answers), T tokens.
All copies are updated by one call of the algorithm's own functions; a copy never sees another.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from peira.algorithms.batch import TrainBatch
from peira.algorithms.family import Algorithm, StepContext

Scorer = Callable[[Tensor], Tensor]
"""parameters -> log-probs [N, T] of the tokens that were sampled."""


def draw(logits: Tensor, num: int, generator: torch.Generator) -> Tensor:
    """`num` arms [..., num] from each softmax over the last axis, by inverting its distribution function.

    One uniform per draw, in the order of the result: with equal streams, arms of a study that agree on the
    policy draw the same answers.
    """
    uniforms = torch.rand(*logits.shape[:-1], num, generator=generator, dtype=logits.dtype)
    edges = torch.softmax(logits, dim=-1).cumsum(dim=-1)
    return torch.searchsorted(edges, uniforms).clamp(max=logits.shape[-1] - 1)


def advantages(algorithm: Algorithm, rewards: Tensor, *, context: StepContext | None = None) -> Tensor:
    """[..., P, G] rewards, all judged -> advantages; only for methods that look at one group at a time."""
    flat = rewards.reshape(-1, rewards.shape[-1])
    judged = torch.ones_like(flat, dtype=torch.bool)
    return algorithm.advantages(flat, judged, context=context).reshape(rewards.shape)


def train_batch(
    advantages: Tensor,
    *,
    old: Tensor,
    sampling: Tensor | None = None,
    reference: Tensor | None = None,
    group_size: int = 1,
) -> TrainBatch:
    """Rollouts of T tokens, all trained on; [N] or [N, T] advantages."""
    n, t = old.shape
    column = advantages.reshape(n, -1).expand(n, t).to(old.dtype)
    return TrainBatch(
        token_ids=torch.zeros(n, t, dtype=torch.int64),
        lengths=torch.full((n,), t),
        prompt_lengths=torch.zeros(n, dtype=torch.int64),
        group=torch.arange(n) // group_size,
        mask=torch.ones(n, t, dtype=torch.bool),
        advantages=column,
        weights=torch.zeros(n, t),
        sampling_logprobs=old if sampling is None else sampling,
        old_logprobs=old,
        reference_logprobs=reference,
        policy_version=torch.zeros(n, dtype=torch.int64),
        temperature=1.0,
    )


def gradient(
    algorithm: Algorithm, parameters: Tensor, scorer: Scorer, batch: TrainBatch, *, copies: int = 1
) -> Tensor:
    """Of the algorithm's loss by the parameters; each of the `copies` averages over its own N / copies rows.

    `batch` went through `algorithm.prepare` already, once for all updates on it.
    """
    own = parameters.detach().requires_grad_()
    logprobs = scorer(own)
    loss = copies * (algorithm.weights(batch.mask) * algorithm.token_loss(logprobs, batch)).sum()
    (found,) = torch.autograd.grad(loss, own)
    return found


def scorer_of(arms: Tensor) -> Scorer:
    """For logits [S, V] (or [S, P, V]) and sampled arms [S, N] (or [S, P, N]): one token per rollout."""

    def score(logits: Tensor) -> Tensor:
        return torch.log_softmax(logits, dim=-1).gather(-1, arms).reshape(-1, 1)

    return score
