"""Log-probs and gradients of the learner against a plain computation: full logits, log_softmax, autograd."""

import asyncio
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from peira.algorithms.batch import TrainBatch
from peira.config.engine import LocalEngineConfig
from peira.engines.local.engine import LocalEngine
from peira.errors import EngineError
from peira.models import forward


def llama(*, dtype: torch.dtype = torch.float32, layers: int = 2) -> PreTrainedModel:
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=31,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.to(dtype)


def batch_of(rows: list[tuple[int, list[int], list[bool]]], prompts: list[list[int]]) -> TrainBatch:
    """Rows are (prompt, what follows it, which of that is trained)."""
    sequences = [prompts[p] + rest for p, rest, _ in rows]
    shape = (len(rows), max(map(len, sequences)))
    generator = torch.Generator().manual_seed(1)
    token_ids, mask = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool)
    for i, ((p, _, trained), sequence) in enumerate(zip(rows, sequences, strict=True)):
        token_ids[i, : len(sequence)] = torch.tensor(sequence)
        mask[i, len(prompts[p]) : len(sequence)] = torch.tensor(trained, dtype=torch.bool)
    return TrainBatch(
        token_ids=token_ids,
        lengths=torch.tensor([len(s) for s in sequences]),
        prompt_lengths=torch.tensor([len(prompts[p]) for p, _, _ in rows]),
        group=torch.tensor([p for p, _, _ in rows]),
        mask=mask,
        advantages=torch.zeros(shape),
        weights=torch.randn(shape, generator=generator),
        sampling_logprobs=torch.zeros(shape),
        old_logprobs=torch.zeros(shape),
        policy_version=torch.zeros(len(rows), dtype=torch.long),
        temperature=0.8,
    )


PROMPTS = [[5, 6, 7, 8, 9, 10], [11, 12], [13, 14, 15, 16]]
BATCH = batch_of(
    [
        (0, [3, 4, 5, 6, 2], [True] * 5),
        (0, [9, 2], [True] * 2),
        # two turns: what the environment said in between is not trained on
        (0, [9, 8, 7, 6, 5, 4, 3, 2], [True, True, False, False, False, True, True, True]),
        (1, [3], [True]),
        (1, [4, 5, 6, 7], [True] * 4),
        (2, [20, 21, 22], [False, True, True]),
    ],
    PROMPTS,
)


def squared(logprobs: Tensor, batch: TrainBatch) -> Tensor:
    return torch.where(batch.mask, logprobs.square() - logprobs, 0.0)


def plain(model: PreTrainedModel, batch: TrainBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """Log-probs [N, T] and gradients the long way, row by row and without padding."""
    model.zero_grad()
    logprobs = torch.zeros(batch.token_ids.shape)
    total = torch.zeros(())
    for row in range(batch.num_sequences):
        length = int(batch.lengths[row])
        ids = batch.token_ids[row, :length]
        scores = torch.log_softmax(model(ids[None]).logits[0].float() / batch.temperature, dim=-1)
        own = scores[torch.arange(length - 1), ids[1:]]
        trained = batch.mask[row, 1:length]
        total = total + (batch.weights[row, 1:length] * (own.square() - own))[trained].sum()
        logprobs[row, 1:length] = torch.where(trained, own.detach(), 0.0)
    total.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return logprobs, gradients


def ours(
    model: PreTrainedModel, batches: list[TrainBatch], **config: object
) -> tuple[list[Tensor], dict[str, Tensor]]:
    engine = LocalEngine(model, end_ids=(2,), config=LocalEngineConfig(**config))

    async def work() -> list[Tensor]:
        return [(await engine.forward_backward(batch, squared)).logprobs for batch in batches]

    logprobs = asyncio.run(work())
    return logprobs, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same_gradients(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(
            found[name], gradient, atol=2e-5, rtol=2e-4, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("share_prompts", [True, False])
@pytest.mark.parametrize("checkpointing", [True, False])
def test_gradients_equal_the_plain_ones(share_prompts: bool, checkpointing: bool) -> None:
    model = llama().eval()
    expected_logprobs, expected = plain(model, BATCH)
    logprobs, found = ours(model, [BATCH], share_prompts=share_prompts, gradient_checkpointing=checkpointing)
    torch.testing.assert_close(logprobs[0], expected_logprobs, atol=1e-5, rtol=1e-5)
    assert_same_gradients(found, expected)


@pytest.mark.parametrize("budget", [1, 12, 24])
def test_micro_batches_add_up_to_the_same_gradient(budget: int) -> None:
    model = llama().eval()
    _, expected = plain(model, BATCH)
    pieces = BATCH.split(budget)
    assert len(pieces) > 1
    _, found = ours(model, pieces)
    assert_same_gradients(found, expected)


@pytest.mark.parametrize(("keep_bytes", "chunk_bytes"), [(0, 4 * 31 * 3), (1 << 20, 4 * 31 * 3), (0, 1)])
def test_chunks_of_the_head_add_up_to_the_same_gradient(
    monkeypatch: pytest.MonkeyPatch, keep_bytes: int, chunk_bytes: int
) -> None:
    # three rows of 31 logits at a time, probabilities kept or made again; and one row at a time
    monkeypatch.setattr(forward, "KEEP_BYTES", keep_bytes)
    monkeypatch.setattr(forward, "CHUNK_BYTES", chunk_bytes)
    model = llama().eval()
    expected_logprobs, expected = plain(model, BATCH)
    logprobs, found = ours(model, [BATCH])
    torch.testing.assert_close(logprobs[0], expected_logprobs, atol=1e-5, rtol=1e-5)
    assert_same_gradients(found, expected)


def test_checkpointed_layers_are_computed_again_in_backward() -> None:
    for checkpointing, expected in ((True, 2), (False, 1)):
        model, calls = llama(), 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        model.model.layers[0].mlp.register_forward_pre_hook(count)
        config = LocalEngineConfig(gradient_checkpointing=checkpointing, share_prompts=False)
        engine = LocalEngine(model, end_ids=(2,), config=config)
        calls = 0
        asyncio.run(engine.forward_backward(BATCH, squared))
        assert calls == expected


def test_each_prompt_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, ...]] = []
    original = forward.Network.features

    def watched(self: forward.Network, token_ids: Tensor, **options: object) -> Tensor:
        shapes.append(tuple(token_ids.shape))
        return original(self, token_ids, **options)  # type: ignore[arg-type]

    model = llama()
    engine = LocalEngine(model, end_ids=(2,))
    monkeypatch.setattr(forward.Network, "features", watched)
    asyncio.run(engine.forward_backward(BATCH, squared))
    # three prompts of at most 6 tokens; six rows of at most 8, the last of which predicts nothing
    assert shapes == [(3, 6), (6, 7)]


def test_rows_that_are_their_groups_only_ones_are_computed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama().eval()
    alone = BATCH.select(torch.tensor([2, 4, 5]))
    _, expected = plain(model, alone)
    _, found = ours(model, [alone])
    assert_same_gradients(found, expected)


def test_tokens_without_gradient_cost_none_and_change_none() -> None:
    model = llama().eval()
    engine = LocalEngine(model, end_ids=(2,))
    dead = replace(BATCH, weights=torch.zeros_like(BATCH.weights))
    asyncio.run(engine.forward_backward(dead, squared))
    assert all(not p.grad.any() for p in model.parameters() if p.grad is not None)


def test_rows_of_a_group_must_share_their_prompt() -> None:
    ids = BATCH.token_ids.clone()
    ids[1, 2] += 1
    engine = LocalEngine(llama(), end_ids=(2,))
    with pytest.raises(EngineError, match=r"row 1: prompt_lengths = 6: .*group 0"):
        asyncio.run(engine.logprobs(replace(BATCH, token_ids=ids)))


def test_the_first_token_of_a_row_cannot_be_trained_on() -> None:
    mask = BATCH.mask.clone()
    mask[0, 0] = True
    engine = LocalEngine(llama(), end_ids=(2,))
    with pytest.raises(EngineError, match=r"mask\[:, 0\]"):
        asyncio.run(engine.forward_backward(replace(BATCH, mask=mask), squared))


def test_a_frozen_model_answers_but_does_not_learn() -> None:
    model = llama().requires_grad_(False)
    engine = LocalEngine(model, end_ids=(2,))
    assert asyncio.run(engine.logprobs(BATCH)).shape == BATCH.token_ids.shape
    with pytest.raises(EngineError, match="frozen"):
        asyncio.run(engine.forward_backward(BATCH, squared))


def test_logprobs_in_parts_equal_logprobs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from peira.engines.local import learner

    engine = LocalEngine(llama(), end_ids=(2,))
    whole = asyncio.run(engine.logprobs(BATCH))
    monkeypatch.setattr(learner, "LOGPROB_TOKENS", 10)
    torch.testing.assert_close(asyncio.run(engine.logprobs(BATCH)), whole, atol=1e-6, rtol=1e-6)


def adamw_by_hand(
    weight: Tensor, gradient: Tensor, lr: float, decay: float, betas: tuple[float, float]
) -> Tensor:
    """First step: m = (1-b1) g, v = (1-b2) g^2, both divided by their own bias, so m/sqrt(v) = g/|g|."""
    return weight * (1 - lr * decay) - lr * gradient / (gradient.abs() + 1e-8)


def test_one_step_is_adamw_with_decay_on_matrices_only() -> None:
    model = llama().eval()
    _, gradients = plain(model, BATCH)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    engine = LocalEngine(model, end_ids=(2,), weight_decay=0.1, max_grad_norm=None)

    async def work() -> float:
        await engine.forward_backward(BATCH, squared)
        return await engine.optim_step(lr=0.01)

    norm = asyncio.run(work())
    total = sum(float(g.double().square().sum()) for g in gradients.values())
    assert norm == pytest.approx(total**0.5, rel=1e-4)
    for name, p in model.named_parameters():
        decay = 0.1 if p.dim() >= 2 else 0.0
        expected = adamw_by_hand(before[name], gradients[name], 0.01, decay, (0.9, 0.999))
        # where the gradient is rounding noise its sign is too
        firm = gradients[name].abs() > 1e-3
        torch.testing.assert_close(p.detach()[firm], expected[firm], atol=1e-4, rtol=1e-4)


def test_clipping_scales_the_whole_gradient() -> None:
    # after clipping to norm 1 the second moment of Adam is that of gradient / norm
    model = llama().eval()
    _, gradients = plain(model, BATCH)
    engine = LocalEngine(model, end_ids=(2,), max_grad_norm=1.0)

    async def work() -> float:
        await engine.forward_backward(BATCH, squared)
        return await engine.optim_step(lr=0.01)

    norm = asyncio.run(work())
    assert norm > 1
    optimizer = engine._learner._optimizer  # type: ignore[union-attr]
    name, p = next(iter(model.named_parameters()))
    assert optimizer is not None
    expected = 0.001 * (gradients[name] / norm).square()
    torch.testing.assert_close(optimizer.state[p]["exp_avg_sq"], expected, atol=1e-7, rtol=1e-3)


def test_narrow_weights_learn_from_steps_too_small_for_them() -> None:
    # bfloat16 keeps 8 bits: 1 + 1e-4 rounds to 1, and forty such steps in bfloat16 would go nowhere;
    # the float32 master goes 40 * 1e-4 = 4e-3, half a unit in the last place of 1
    model = llama(dtype=torch.bfloat16)
    norm_weight = model.model.norm.weight
    with torch.no_grad():
        norm_weight.fill_(1.0)
    engine = LocalEngine(model, end_ids=(2,))

    async def work() -> None:
        for _ in range(120):
            await engine.forward_backward(BATCH, squared)
            await engine.optim_step(lr=1e-4)

    asyncio.run(work())
    assert norm_weight.dtype == torch.bfloat16
    assert (norm_weight != 1.0).any()


def test_nothing_is_allocated_for_the_optimizer_before_the_first_step() -> None:
    engine = LocalEngine(llama(), end_ids=(2,))
    asyncio.run(engine.logprobs(BATCH))
    asyncio.run(engine.forward_backward(BATCH, squared))
    assert engine._learner._optimizer is None  # type: ignore[union-attr]
