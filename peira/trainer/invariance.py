"""Cutting a batch never changes its gradient: measured on a real batch of a run, cut in several ways."""

import math
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from peira.algorithms.batch import BackwardResult, TokenLoss, TrainBatch
from peira.config.run import RunConfig
from peira.engines.protocol import Capabilities, Engine, SyncReceipt
from peira.errors import EngineError
from peira.trainer.step import Parts, take_step
from peira.types.rollout import Completion, SampleRequest

WHOLE = 10**12
"""More tokens than any batch has."""
Gradients = Callable[[], Iterable[tuple[str, Tensor]]]
"""The gradient accumulated so far, by parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutResult:
    """What the learner made of the batch under one cut."""

    name: str
    num_parts: int
    loss: float
    grad_norm: float
    loss_gap: float
    """|loss - first loss| / |first loss|, likewise below; the first cut's are 0."""
    norm_gap: float
    one_minus_cosine: float | None
    """Of the angle between this gradient and the first cut's; None where the engine shows no gradients."""


def same_gradient(results: Sequence[CutResult], *, tolerance: float) -> bool:
    """Whether loss, norm and direction agree between all cuts, to within this relative difference."""
    gaps = [gap for r in results for gap in (r.loss_gap, r.norm_gap, r.one_minus_cosine or 0.0)]
    return all(gap <= tolerance for gap in gaps)  # NaN fails this too


async def real_batch(run: RunConfig, parts: Parts) -> tuple[TrainBatch, bool]:
    """The batch of the run's first optimizer step, made by the loop itself; nothing is learnt.

    Where no group has a signal, advantages of +1 and -1 in turn take its place, so that there is a gradient.

    Returns:
        The batch, and whether its advantages are the verifiers'.

    Raises:
        EngineError: not one rollout was judged and has tokens.
    """
    await parts.engine.sync_weights()
    whole = run.model_copy(update={"micro_batch_tokens": WHOLE, "updates_per_step": 1, "epochs_per_step": 1})
    for natural in (True, False):
        recorder = _Recorder(parts.engine)
        algorithm = parts.algorithm if natural else replace(parts.algorithm, advantages=_alternating)
        state = parts.tasks.state()
        try:
            await take_step(
                1,
                whole,
                replace(parts, engine=recorder, algorithm=algorithm),
                {},
                beat=lambda stage: None,
                check=lambda: None,
            )
        finally:
            parts.tasks.restore(state)
        if recorder.batches:
            return recorder.batches[0], natural
    raise EngineError("invariance: rollouts = none that was judged: expected some; see `peira doctor`")


def _alternating(rewards: Float[Tensor, "P G"], judged: Tensor, **_: Any) -> Float[Tensor, "P G"]:
    signs = 1.0 - 2.0 * (torch.arange(rewards.shape[1]) % 2)
    return torch.where(judged, signs.expand_as(rewards), 0.0)


async def measure_cuts(
    engine: Engine,
    batch: TrainBatch,
    loss: TokenLoss,
    *,
    micro_batch_tokens: int,
    gradients: Gradients | None = None,
    first: dict[str, Tensor] | None = None,
    against: CutResult | None = None,
    label: str = "",
) -> tuple[list[CutResult], dict[str, Tensor]]:
    """Loss and gradient of the batch whole, in two, four, by the run's budget, and sequence by sequence.

    Optimizer steps at learning rate 0 clear the gradient between cuts and leave the weights as they are.

    Args:
        gradients: reads the engine's gradient, to compare directions and not only lengths.
        first: the gradient to compare with, and
        against: the result that goes with it; None compares with the first cut.
        label: put before each cut's name.

    Returns:
        One result per cut, and the gradient of the first.
    """
    kept = dict(first or {})
    results: list[CutResult] = []
    for name, pieces in _cuts(batch, micro_batch_tokens):
        total = math.fsum([(await engine.forward_backward(piece, loss)).loss for piece in pieces])
        cosine: float | None = None
        if gradients is not None:
            if not kept:
                kept = {key: grad.detach().cpu().clone() for key, grad in gradients()}
            cosine = _one_minus_cosine(kept, gradients())
        norm = await engine.optim_step(lr=0.0)
        reference = against or (results[0] if results else None)
        results.append(
            CutResult(
                name=f"{label}{name}",
                num_parts=len(pieces),
                loss=total,
                grad_norm=norm,
                loss_gap=_gap(total, reference.loss if reference else total, norm),
                norm_gap=_gap(norm, reference.grad_norm if reference else norm, norm),
                one_minus_cosine=cosine,
            )
        )
    return results, kept


def _cuts(batch: TrainBatch, micro_batch_tokens: int) -> list[tuple[str, list[TrainBatch]]]:
    """Ways of taking the same sequences to the learner; a cut may go through the middle of a group."""
    rows = torch.arange(batch.num_sequences)
    return [
        ("whole batch", [batch]),
        ("in two", [batch.select(part) for part in rows.tensor_split(2) if part.numel()]),
        ("in four", [batch.select(part) for part in rows.tensor_split(4) if part.numel()]),
        (f"micro_batch_tokens={micro_batch_tokens}", batch.split(micro_batch_tokens)),
        ("sequence by sequence", [batch.select(row[None]) for row in rows.flip(0)]),
    ]


def _gap(value: float, reference: float, scale: float) -> float:
    """Relative to the reference, or to the gradient's norm where a loss near 0 would exaggerate it."""
    size = max(abs(reference), scale)
    return abs(value - reference) / size if size > 0 else abs(value - reference)


def _one_minus_cosine(first: dict[str, Tensor], second: Iterable[tuple[str, Tensor]]) -> float:
    dot = one = two = 0.0
    for name, grad in second:
        a, b = first[name].double().flatten(), grad.detach().cpu().double().flatten()
        dot, one, two = dot + float(a @ b), one + float(a @ a), two + float(b @ b)
    return 1.0 - dot / math.sqrt(one * two) if one > 0 and two > 0 else math.nan


@dataclass
class _Recorder:
    """An engine that keeps the batches it is asked to learn from, and learns nothing."""

    inner: Engine
    batches: list[TrainBatch] = field(default_factory=list)

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    @property
    def policy_version(self) -> int:
        return self.inner.policy_version

    def sample(self, requests: Sequence[SampleRequest]) -> AsyncGenerator[Completion, None]:
        return self.inner.sample(requests)

    def abort(self) -> None:
        self.inner.abort()

    async def logprobs(self, batch: TrainBatch) -> Float[Tensor, "N T"]:
        return await self.inner.logprobs(batch)

    async def forward_backward(self, batch: TrainBatch, loss: TokenLoss) -> BackwardResult:
        self.batches.append(batch)
        nothing = torch.zeros(batch.token_ids.shape)
        return BackwardResult(loss=0.0, logprobs=nothing, entropy=nothing)

    async def optim_step(self, *, lr: float) -> float:
        return 0.0

    async def sync_weights(self) -> SyncReceipt:
        return await self.inner.sync_weights()

    async def save(self, path: Path) -> None:
        await self.inner.save(path)

    async def load(self, path: Path) -> None:
        await self.inner.load(path)

    async def close(self) -> None:
        await self.inner.close()
