"""The one record that carries a step's rollouts to the learner, and what the learner gives back.

Shape letters in `peira.algorithms`: P prompts in the batch, G rollouts per prompt, N sequences (P * G, or
fewer when dead groups were dropped), T tokens per sequence (padded), V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainBatch:
    """Rollouts as padded tensors; column t of every `[N, T]` field speaks of `token_ids[:, t]`.

    Sequences are right-padded and hold prompt and completion in order. `mask` is True at the tokens the
    policy generated and is trained on; everywhere else the float columns may hold anything. Position 0 is
    never trained on, since nothing precedes it.
    """

    token_ids: Int[Tensor, "N T"]
    lengths: Int[Tensor, "N"]
    """Tokens in each row before padding."""
    prompt_lengths: Int[Tensor, "N"]
    """Length of the leading part that all rows with the same `group` share, token for token."""
    group: Int[Tensor, "N"]
    """Which prompt a row belongs to; rows of a group are adjacent."""
    mask: Bool[Tensor, "N T"]
    advantages: Float[Tensor, "N T"]
    weights: Float[Tensor, "N T"]
    """The batch loss is sum(weights * token_loss); fixed on the whole batch before it is cut."""
    sampling_logprobs: Float[Tensor, "N T"]
    """Under the distribution each token was drawn from (the sampler's, after temperature)."""
    old_logprobs: Float[Tensor, "N T"]
    """Under the learner before this batch's first update."""
    reference_logprobs: Float[Tensor, "N T"] | None = None
    """Under the frozen reference; only when a KL term needs it."""
    other_reference_logprobs: Float[Tensor, "N T R"] | None = None
    """Under R further references (an earlier release, say), for penalties that add up."""
    mismatch_weights: Float[Tensor, "N T"] | None = None
    """Detached importance correction between sampler and learner; None means 1 everywhere."""
    policy_version: Int[Tensor, "N"]
    temperature: float
    """The learner's log-probs are taken at this temperature, as the sampler's were."""

    @property
    def num_sequences(self) -> int:
        """N."""
        return self.token_ids.shape[0]

    def select(self, rows: Int[Tensor, "M"]) -> "TrainBatch":
        """The batch of these rows, in this order, with columns trimmed to the longest of them."""
        width = int(self.lengths[rows].max()) if rows.numel() else 0
        changes: dict[str, Tensor] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                changes[field.name] = value[rows, :width] if value.dim() > 1 else value[rows]
        return replace(self, **changes)  # type: ignore[arg-type]  # names come from fields(self)

    def split(self, max_tokens: int) -> list["TrainBatch"]:
        """Cut into micro-batches of at most `max_tokens` computed tokens, rows in order.

        A row costs its length without the shared prompt, padded to the longest row of its micro-batch; a
        group's prompt is counted once per micro-batch. One row that alone exceeds the budget is a micro-batch
        of its own: cutting never drops or shortens anything, and never changes the gradient.
        """
        pieces: list[list[int]] = []
        widest = prompts = 0
        seen: set[int] = set()
        for row in range(self.num_sequences):
            own = int(self.lengths[row] - self.prompt_lengths[row])
            group = int(self.group[row])
            prompt = 0 if group in seen else int(self.prompt_lengths[row])
            cost = (len(pieces[-1]) + 1) * max(widest, own) + prompts + prompt if pieces else 0
            if not pieces or cost > max_tokens:
                pieces.append([])
                widest, prompts, seen = 0, 0, set()
                prompt = int(self.prompt_lengths[row])
            pieces[-1].append(row)
            widest = max(widest, own)
            prompts += prompt
            seen.add(group)
        return [self.select(torch.tensor(rows)) for rows in pieces]


TokenLoss = Callable[[Float[Tensor, "N T"], TrainBatch], Float[Tensor, "N T"]]
"""(current logprobs, batch) -> loss per token; exactly 0 where `batch.mask` is False. Must pickle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardResult:
    """What `forward_backward` saw; detached, on the CPU, aligned with the batch it was given."""

    loss: float
    """sum(weights * token_loss) of this micro-batch."""
    logprobs: Float[Tensor, "N T"]
    """Under the learner at the time, 0 where the mask is False."""
    entropy: Float[Tensor, "N T"]
    """Of the learner's distribution at each trained token, in nats, 0 where the mask is False."""
