"""One step's rollouts into weights: micro-batches, accumulated gradients, optimizer steps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from peira.algorithms.batch import TrainBatch
from peira.algorithms.family import Algorithm
from peira.engines.protocol import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One optimizer step: what it was given and what it saw."""

    batch: TrainBatch
    logprobs: Float[Tensor, "N T"]
    """Under the learner as this update found it."""
    entropy: Float[Tensor, "N T"]
    loss: float
    """That of the anchors included."""
    anchor_loss: float | None
    """None where there are no anchors."""
    grad_norm: float
    lr: float
    tokens: int
    """Trained tokens."""


async def learn(
    engine: Engine,
    reference: Engine | None,
    batches: Sequence[TrainBatch],
    algorithm: Algorithm,
    *,
    others: Sequence[Engine] = (),
    anchors: TrainBatch | None = None,
    epochs: int,
    micro_batch_tokens: int,
    rates: Sequence[float],
    on_progress: Callable[[], None] = lambda: None,
) -> list[Update]:
    """Take one optimizer step per batch and epoch; return what each saw, in order.

    A batch that is used once, alone, and on-policy keeps the sampler's log-probs as its old ones; as soon as
    there is a second optimizer step, or the algorithm wants them, old log-probs are the learner's own, taken
    for all batches before the first of them. Reference log-probs are taken once. Both are new records: no
    stage edits another's.

    Args:
        others: further references, asked once like the first.
        anchors: rows whose loss is `algorithm.anchor_loss`, beside those of every update; their weights are
            fixed already.
        rates: learning rate of each optimizer step, `epochs * len(batches)` of them.
    """
    ready = []
    for batch in batches:
        if epochs * len(batches) > 1 or algorithm.needs_old_logprobs:
            batch = replace(batch, old_logprobs=await score_batch(engine, batch, micro_batch_tokens))
            on_progress()
        if reference is not None:
            batch = replace(batch, reference_logprobs=await score_batch(reference, batch, micro_batch_tokens))
            on_progress()
        if others:
            scores = [await score_batch(other, batch, micro_batch_tokens) for other in others]
            batch = replace(batch, other_reference_logprobs=torch.stack(scores, dim=2))
            on_progress()
        ready.append(algorithm.prepare(batch))
    updates = []
    for batch, lr in zip(list(ready) * epochs, rates, strict=True):
        total = 0.0
        seen: list[tuple[Tensor, Tensor]] = []
        for micro in batch.split(micro_batch_tokens):
            result = await engine.forward_backward(micro, algorithm.token_loss)
            total += result.loss
            seen.append((result.logprobs, result.entropy))
            on_progress()
        anchor_total = 0.0
        if anchors is not None:
            assert algorithm.anchor_loss is not None, "anchors, but the algorithm has no loss for them"
            for micro in anchors.split(micro_batch_tokens):
                anchor_total += (await engine.forward_backward(micro, algorithm.anchor_loss)).loss
                on_progress()
        grad_norm = await engine.optim_step(lr=lr)
        width = batch.mask.shape[1]
        updates.append(
            Update(
                batch=batch,
                logprobs=torch.cat([_widen(logprobs, width) for logprobs, _ in seen]),
                entropy=torch.cat([_widen(entropy, width) for _, entropy in seen]),
                loss=total + anchor_total,
                anchor_loss=None if anchors is None else anchor_total,
                grad_norm=grad_norm,
                lr=lr,
                tokens=int(batch.mask.sum()),
            )
        )
    return updates


async def score_batch(engine: Engine, batch: TrainBatch, micro_batch_tokens: int) -> Float[Tensor, "N T"]:
    """Learner log-probs of a whole batch, micro-batch by micro-batch."""
    width = batch.mask.shape[1]
    return torch.cat(
        [_widen(await engine.logprobs(micro), width) for micro in batch.split(micro_batch_tokens)]
    )


def _widen(columns: Float[Tensor, "M S"], width: int) -> Float[Tensor, "M T"]:
    """Micro-batches are trimmed to their longest row; pad back to the batch's width."""
    return torch.nn.functional.pad(columns, (0, width - columns.shape[1]))
