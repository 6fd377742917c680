"""The crossing: before this file lists and strings, after it padded tensors with a mask."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from peira.algorithms.batch import TrainBatch
from peira.algorithms.family import WeightFunction
from peira.types.scored import ScoredGroup, ScoredRollout


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


def channel_table(scored: Sequence[ScoredGroup], channels: Sequence[str]) -> Float[Tensor, "P G K"]:
    """Scores by verifier, not summed; NaN where a channel gave none."""

    def score(rollout: ScoredRollout, channel: str) -> float:
        verdict = rollout.verdicts.get(channel)
        return float("nan") if verdict is None or verdict.score is None else verdict.score

    return torch.tensor(
        [[[score(r, channel) for channel in channels] for r in group.rollouts] for group in scored]
    )


def behaviour_table(scored: Sequence[ScoredGroup]) -> tuple[Bool[Tensor, "P G"], Bool[Tensor, "P G"]]:
    """(truncated, duplicate): cut off by the budget; same tokens as an earlier member of its group."""
    truncated, duplicate = [], []
    for group in scored:
        texts = [tuple(t.completion.token_ids for t in r.rollout.turns) for r in group.rollouts]
        truncated.append([r.rollout.truncated for r in group.rollouts])
        duplicate.append([text in texts[:i] for i, text in enumerate(texts)])
    return torch.tensor(truncated), torch.tensor(duplicate)


def version_table(scored: Sequence[ScoredGroup]) -> Int[Tensor, "P G"]:
    """Version of the oldest weights that drew a token of each rollout."""
    return torch.tensor(
        [[min(t.completion.policy_version for t in r.rollout.turns) for r in g.rollouts] for g in scored]
    )


def trainable_rows(
    scored: Sequence[ScoredGroup],
    advantages: Float[Tensor, "P G"],
    judged: Bool[Tensor, "P G"],
    stale: Bool[Tensor, "P G"] | None = None,
) -> list[tuple[int, int]]:
    """(group, member) of every rollout that goes to the learner.

    A group without any nonzero advantage goes nowhere: it costs no forward pass and no optimizer step. In a
    live group every judged member goes that is not stale, those with advantage 0 too (a KL term still acts
    on them). Stale members had their say in the group's statistics: rewards do not age.
    """
    fit = judged if stale is None else judged & ~stale
    live = (advantages.ne(0) & fit).any(dim=1)
    return [
        (p, g)
        for p in range(len(scored))
        if live[p]
        for g in range(len(scored[p].rollouts))
        if fit[p, g] and scored[p].rollouts[g].rollout.num_tokens > 0
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRows:
    """Which rollouts one optimizer step trains on, and what was left out beside them for want of a signal."""

    rows: tuple[tuple[int, int], ...]
    dead_sequences: int
    dead_tokens: int


def split_updates(
    scored: Sequence[ScoredGroup],
    rows: Sequence[tuple[int, int]],
    judged: Bool[Tensor, "P G"],
    *,
    num_updates: int,
) -> list[UpdateRows]:
    """Split a step's rollouts between its optimizer steps: whole groups, in order, as even as they go.

    A part without trainable rows is left out: it has no signal, and so makes no optimizer step.
    """
    live = {p for p, _ in rows}
    parts = []
    for update in range(num_updates):
        span = range(update * len(scored) // num_updates, (update + 1) * len(scored) // num_updates)
        own = tuple(row for row in rows if row[0] in span)
        dead = [
            member.rollout.num_tokens
            for p in span
            if p not in live
            for g, member in enumerate(scored[p].rollouts)
            if judged[p, g]
        ]
        if own:
            parts.append(UpdateRows(rows=own, dead_sequences=len(dead), dead_tokens=sum(dead)))
    return parts


def pack(
    scored: Sequence[ScoredGroup],
    update: UpdateRows,
    advantages: Float[Tensor, "P G"],
    *,
    credit: Float[Tensor, "P G T"] | None = None,
    weights: WeightFunction,
    pad_id: int,
    temperature: float,
) -> TrainBatch:
    """The batch of one optimizer step; weights are fixed here, on the whole of it.

    Args:
        credit: added to the advantages, by token of the completion.
    """
    rollouts = [scored[p].rollouts[g].rollout for p, g in update.rows]
    token_ids, lengths = _pad([r.token_ids for r in rollouts], pad_id, torch.int64)
    mask, _ = _pad([r.mask for r in rollouts], False, torch.bool)
    mask[:, :1] = False  # nothing precedes the first token, so it has no log-prob
    sampling_logprobs, _ = _pad([r.sampling_logprobs for r in rollouts], 0.0, torch.float32)
    table = torch.stack([advantages[p, g] for p, g in update.rows])
    spread = table[:, None].expand_as(mask).clone()
    if credit is not None:
        for row, (p, g) in enumerate(update.rows):
            columns = torch.tensor(rollouts[row].mask).nonzero().flatten()
            spread[row, columns] += credit[p, g, : len(columns)]
    return TrainBatch(
        token_ids=token_ids,
        lengths=lengths,
        prompt_lengths=torch.tensor([len(r.turns[0].prompt_ids) for r in rollouts]),
        group=torch.tensor([p for p, _ in update.rows]),
        mask=mask,
        advantages=spread,
        weights=weights(mask, dead_sequences=update.dead_sequences, dead_tokens=update.dead_tokens),
        sampling_logprobs=sampling_logprobs,
        old_logprobs=sampling_logprobs,
        policy_version=torch.tensor([min(t.completion.policy_version for t in r.turns) for r in rollouts]),
        temperature=temperature,
    )


def _pad(
    values: Sequence[Sequence[float | int | bool]], fill: float | int | bool, dtype: torch.dtype
) -> tuple[Tensor, Int[Tensor, "N"]]:
    lengths = [len(row) for row in values]
    width = max(lengths, default=0)
    padded = torch.full((len(values), width), fill, dtype=dtype)
    for i, row in enumerate(values):
        padded[i, : len(row)] = torch.tensor(row, dtype=dtype)
    return padded, torch.tensor(lengths)
