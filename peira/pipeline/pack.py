"""The crossing: before this file lists and strings, after it padded tensors with a mask."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from peira.algorithms.batch import TrainBatch
from peira.algorithms.family import WeightFunction
from peira.types.rollout import Rollout
from peira.types.scored import ScoredGroup


def reward_table(
    scored: Sequence[ScoredGroup], *, shaped: bool = True
) -> tuple[Float[Tensor, "P G"], Bool[Tensor, "P G"]]:
    """Rewards and judged flags; an unjudged position holds NaN, so that reading it cannot go unnoticed.

    Args:
        shaped: with what shaping added; without it this is the outcome, on which collapse is judged.
    """
    values = [[r.reward if shaped else r.outcome for r in group.rollouts] for group in scored]
    rewards = torch.tensor(
        [[float("nan") if value is None else value for value in row] for row in values], dtype=torch.float32
    )
    return rewards, ~rewards.isnan()


def behaviour_table(scored: Sequence[ScoredGroup]) -> tuple[Bool[Tensor, "P G"], Bool[Tensor, "P G"]]:
    """(truncated, duplicate): cut off by the budget; same tokens as an earlier member of its group."""
    truncated, duplicate = [], []
    for group in scored:
        texts = [tuple(t.completion.token_ids for t in r.rollout.turns) for r in group.rollouts]
        truncated.append([r.rollout.truncated for r in group.rollouts])
        duplicate.append([text in texts[:i] for i, text in enumerate(texts)])
    return torch.tensor(truncated), torch.tensor(duplicate)


def trainable_rows(
    scored: Sequence[ScoredGroup], advantages: Float[Tensor, "P G"], judged: Bool[Tensor, "P G"]
) -> list[tuple[int, int]]:
    """(group, member) of every rollout that goes to the learner.

    A group without any nonzero advantage goes nowhere: it costs no forward pass and no optimizer step. In a
    live group every judged member goes, those with advantage 0 too (a KL term still acts on them).
    """
    live = advantages.ne(0).any(dim=1)
    return [
        (p, g)
        for p in range(len(scored))
        if live[p]
        for g in range(len(scored[p].rollouts))
        if judged[p, g] and scored[p].rollouts[g].rollout.num_tokens > 0
    ]


def counted_rows(scored: Sequence[ScoredGroup], judged: Bool[Tensor, "P G"]) -> list[tuple[int, int]]:
    """(group, member) of every judged rollout, dead groups included: what a published average divides by."""
    return [
        (p, g)
        for p in range(len(scored))
        for g in range(len(scored[p].rollouts))
        if judged[p, g] and scored[p].rollouts[g].rollout.num_tokens > 0
    ]


def pack(
    scored: Sequence[ScoredGroup],
    rows: Sequence[tuple[int, int]],
    advantages: Float[Tensor, "P G"],
    *,
    weights: WeightFunction,
    counted: Sequence[tuple[int, int]],
    pad_id: int,
    temperature: float,
) -> TrainBatch:
    """The batch of one optimizer step.

    Args:
        rows: (group, member) of the rollouts to train on; members of a group are adjacent.
        weights: gives each trained token its share of the batch loss. It sees the masks of all `counted`
            rollouts, of which `rows` are a part, so that what a dead group contributes to the denominators is
            decided by the caller and not by what happened to be dropped.
        counted: the rollouts that averages divide by; a superset of `rows`.
    """
    rollouts = [scored[p].rollouts[g].rollout for p, g in rows]
    token_ids, lengths = _pad([r.token_ids for r in rollouts], pad_id, torch.int64)
    mask, _ = _pad([r.mask for r in rollouts], False, torch.bool)
    mask[:, :1] = False  # nothing precedes the first token, so it has no log-prob
    sampling_logprobs, _ = _pad([r.sampling_logprobs for r in rollouts], 0.0, torch.float32)
    table = torch.tensor([float(advantages[p, g]) for p, g in rows])
    return TrainBatch(
        token_ids=token_ids,
        lengths=lengths,
        prompt_lengths=torch.tensor([len(r.turns[0].prompt_ids) for r in rollouts]),
        group=torch.tensor([p for p, _ in rows]),
        mask=mask,
        advantages=table[:, None].expand_as(mask).clone(),
        weights=_weights(scored, rows, counted, weights, width=mask.shape[1]),
        sampling_logprobs=sampling_logprobs,
        old_logprobs=sampling_logprobs,
        policy_version=torch.tensor([min(t.completion.policy_version for t in r.turns) for r in rollouts]),
        temperature=temperature,
    )


def update_batches(
    rows: Sequence[tuple[int, int]], counted: Sequence[tuple[int, int]], num_updates: int, num_groups: int
) -> list[tuple[list[tuple[int, int]], list[tuple[int, int]]]]:
    """Split a step's rollouts between its optimizer steps: whole groups, in order, as even as they go.

    Returns:
        (rows, counted) per optimizer step; a part without trainable rows is left out, since it has no signal.
    """
    parts = []
    for update in range(num_updates):
        low, high = update * num_groups // num_updates, (update + 1) * num_groups // num_updates
        own = [row for row in rows if low <= row[0] < high]
        if own:
            parts.append((own, [row for row in counted if low <= row[0] < high]))
    return parts


def _weights(
    scored: Sequence[ScoredGroup],
    rows: Sequence[tuple[int, int]],
    counted: Sequence[tuple[int, int]],
    weights: WeightFunction,
    *,
    width: int,
) -> Float[Tensor, "N T"]:
    every = [scored[p].rollouts[g].rollout for p, g in counted]
    masks, _ = _pad([_trainable_mask(r) for r in every], False, torch.bool)
    position = {row: i for i, row in enumerate(counted)}
    own = weights(masks)[torch.tensor([position[row] for row in rows])]
    return own[:, :width].contiguous()


def _trainable_mask(rollout: Rollout) -> tuple[bool, ...]:
    return (False, *rollout.mask[1:])


def _pad(
    values: Sequence[Sequence[float | int | bool]], fill: float | int | bool, dtype: torch.dtype
) -> tuple[Tensor, Int[Tensor, "N"]]:
    lengths = [len(row) for row in values]
    width = max(lengths, default=0)
    padded = torch.full((len(values), width), fill, dtype=dtype)
    for i, row in enumerate(values):
        padded[i, : len(row)] = torch.tensor(row, dtype=dtype)
    return padded, torch.tensor(lengths)
