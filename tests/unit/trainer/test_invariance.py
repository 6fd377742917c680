"""The measurement of law 4: it sees equal gradients as equal, and an unequal one as unequal."""

import asyncio
import math

import pytest
import torch

from peira.algorithms.batch import TrainBatch
from peira.engines.scripted import ScriptedEngine
from peira.trainer.invariance import CutResult, measure_cuts, same_gradient


def batch(num_rows: int = 6) -> TrainBatch:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([3 + row % 3 for row in range(num_rows)])
    width = int(lengths.max())
    mask = (torch.arange(width)[None] >= 1) & (torch.arange(width)[None] < lengths[:, None])
    shape = (num_rows, width)
    zeros = torch.zeros(shape)
    return TrainBatch(
        token_ids=torch.randint(1, 32, shape, generator=generator),
        lengths=lengths,
        prompt_lengths=torch.ones(num_rows, dtype=torch.int64),
        group=torch.arange(num_rows) // 2,
        mask=mask,
        advantages=torch.randn(shape, generator=generator),
        weights=mask / mask.sum(),
        sampling_logprobs=zeros,
        old_logprobs=zeros,
        policy_version=torch.zeros(num_rows, dtype=torch.int64),
        temperature=1.0,
    )


def push(logprobs: torch.Tensor, batch: TrainBatch) -> torch.Tensor:
    return torch.where(batch.mask, -batch.advantages * logprobs, 0.0)


def averaged_over_its_part(logprobs: torch.Tensor, batch: TrainBatch) -> torch.Tensor:
    """The mistake that the measurement is for: normalise by the micro-batch's own count."""
    return push(logprobs, batch) / batch.num_sequences


def engine() -> ScriptedEngine:
    return ScriptedEngine(vocabulary_size=32, end_ids=(0,), max_grad_norm=None)


def measure(loss, *, gradients: bool):
    machine = engine()
    read = (lambda: [("table", machine._table.grad)]) if gradients else None
    return asyncio.run(measure_cuts(machine, batch(), loss, micro_batch_tokens=8, gradients=read)), machine


@pytest.mark.parametrize("gradients", [True, False])
def test_a_sum_over_tokens_has_one_gradient_however_it_is_cut(gradients):
    (results, _), machine = measure(push, gradients=gradients)
    assert [result.num_parts for result in results[:3]] == [1, 2, 4]
    assert results[-1].num_parts == 6
    assert all((result.one_minus_cosine is None) != gradients for result in results)
    assert same_gradient(results, tolerance=1e-5)
    assert machine.policy_version == len(results)  # steps at learning rate 0 cleared the gradient


def test_measuring_leaves_the_weights_as_they_are():
    machine = engine()
    before = machine._table.detach().clone()
    asyncio.run(measure_cuts(machine, batch(), push, micro_batch_tokens=8))
    assert torch.equal(machine._table.detach(), before)


def test_averaging_over_each_part_is_found_out():
    (results, _), _ = measure(averaged_over_its_part, gradients=True)
    assert results[0].loss_gap == 0.0
    # six sequences one by one are each divided by 1 instead of 6
    assert results[-1].grad_norm == pytest.approx(6 * results[0].grad_norm, rel=1e-4)
    assert not same_gradient(results, tolerance=1e-3)


def test_a_second_engine_is_compared_with_the_first():
    (results, gradient), _ = measure(push, gradients=True)
    other = engine()
    with torch.no_grad():
        other._table.add_(torch.linspace(0, 1, 32))  # other weights, another gradient
    more, _ = asyncio.run(
        measure_cuts(
            other,
            batch(),
            push,
            micro_batch_tokens=8,
            gradients=lambda: [("table", other._table.grad)],
            first=gradient,
            against=results[0],
            label="other, ",
        )
    )
    assert more[0].name == "other, whole batch"
    assert more[0].norm_gap > 1e-3
    assert more[0].one_minus_cosine is not None
    assert more[0].one_minus_cosine > 1e-3


@pytest.mark.parametrize("gap", ["loss_gap", "norm_gap", "one_minus_cosine"])
@pytest.mark.parametrize("value", [1e-2, math.nan])
def test_any_gap_breaks_the_verdict_and_so_does_nan(gap, value):
    fine = {
        "name": "x", "num_parts": 1, "loss": 1.0, "grad_norm": 1.0,
        "loss_gap": 0.0, "norm_gap": 0.0, "one_minus_cosine": 0.0,
    }  # fmt: skip
    assert same_gradient([CutResult(**fine)], tolerance=1e-4)
    assert not same_gradient([CutResult(**{**fine, gap: value})], tolerance=1e-4)
