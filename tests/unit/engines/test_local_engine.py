"""What is particular to the engine in one process: proof of sync, the folder it saves, its rows."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, MambaConfig, MambaForCausalLM

from peira.config.engine import LocalEngineConfig
from peira.engines.local.engine import LocalEngine
from peira.errors import CheckpointError, SyncError
from peira.models.decoder import CachedDecoder
from peira.types.rollout import Completion, SampleRequest, SamplingParams
from tests.unit.engines.test_learner import BATCH, llama, squared


def request(id: str = "a", *, length: int = 4, num_samples: int = 2, max_tokens: int = 6) -> SampleRequest:
    return SampleRequest(
        id=id,
        prompt_ids=tuple(range(5, 5 + length)),
        num_samples=num_samples,
        params=SamplingParams(max_tokens=max_tokens),
        seed=1,
    )


async def drawn(engine: LocalEngine, *requests: SampleRequest) -> list[Completion]:
    return [completion async for completion in engine.sample(requests)]


# ---- the proof ----


def test_shared_weights_are_counted_and_proven() -> None:
    model = llama()
    receipt = asyncio.run(LocalEngine(model, end_ids=(2,)).sync_weights())
    state = model.state_dict()
    assert receipt.num_tensors == len(state)
    assert receipt.size_bytes == sum(t.numel() * 4 for t in state.values())
    assert receipt.policy_version == 0
    assert 0 <= receipt.canary_gap < 1e-5


def test_a_sampler_of_its_own_receives_every_tensor() -> None:
    model, copy = llama(), llama()
    with torch.no_grad():
        for parameter in copy.parameters():
            parameter.normal_()
    engine = LocalEngine(model, end_ids=(2,), sampler_model=copy)
    asyncio.run(engine.sync_weights())
    for name, tensor in model.state_dict().items():
        assert torch.equal(copy.state_dict()[name], tensor)
        assert copy.state_dict()[name].data_ptr() != tensor.data_ptr()


def test_a_narrower_sampler_is_held_to_what_its_dtype_can_show() -> None:
    engine = LocalEngine(llama(), end_ids=(2,), sampler_model=llama(dtype=torch.bfloat16))
    receipt = asyncio.run(engine.sync_weights())
    assert 1e-4 < receipt.canary_gap < 0.25
    strict = LocalEngineConfig(sync_tolerance=1e-4)
    engine = LocalEngine(llama(), end_ids=(2,), sampler_model=llama(dtype=torch.bfloat16), config=strict)
    with pytest.raises(SyncError, match=r"canary gap = .* expected at most 0\.0001"):
        asyncio.run(engine.sync_weights())


def test_a_sampler_that_computes_with_other_weights_is_caught() -> None:
    copy = llama()
    engine = LocalEngine(llama(), end_ids=(2,), sampler_model=copy)

    # the copy's tensors are right, but one layer adds 2% to what it multiplies
    def stray(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return output * 1.02

    handle = copy.model.layers[1].mlp.down_proj.register_forward_hook(stray)
    with pytest.raises(SyncError, match=r"canary gap = .* nats .*policy version 0.*last proven: None"):
        asyncio.run(engine.sync_weights())
    handle.remove()
    assert asyncio.run(engine.sync_weights()).canary_gap < 1e-5


def test_a_fault_in_the_cached_path_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    # positions one too far: harmless to the first token, wrong for every later one
    original = CachedDecoder.step

    def shifted(self: CachedDecoder, tokens: list[int]) -> Tensor:
        self._cache.lengths = [length + 1 for length in self._cache.lengths]
        try:
            return original(self, tokens)
        finally:
            self._cache.lengths = [length - 1 for length in self._cache.lengths]

    engine = LocalEngine(llama(), end_ids=(2,))
    monkeypatch.setattr(CachedDecoder, "step", shifted)
    with pytest.raises(SyncError, match="canary gap"):
        asyncio.run(engine.sync_weights())


def test_a_canary_of_nan_proves_nothing() -> None:
    model = llama()
    engine = LocalEngine(model, end_ids=(2,))
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    with pytest.raises(SyncError, match=r"canary gap = inf .* are not finite.*lower optimizer\.lr"):
        asyncio.run(engine.sync_weights())


def test_a_tensor_on_one_side_only_is_named() -> None:
    engine = LocalEngine(llama(), end_ids=(2,), sampler_model=llama(layers=3))
    with pytest.raises(SyncError, match=r"9 tensors on one side only, first 'model\.layers\.2\."):
        asyncio.run(engine.sync_weights())


# ---- disk ----


def test_the_saved_folder_is_an_ordinary_model(tmp_path: Path) -> None:
    model = llama().eval()
    engine = LocalEngine(model, end_ids=(2,))
    asyncio.run(engine.save(tmp_path))
    assert (tmp_path / "model.safetensors").is_file()
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "llama"
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = BATCH.token_ids
    torch.testing.assert_close(loaded(ids).logits, model(ids).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_resumed_run_takes_the_same_steps_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    async def steps(engine: LocalEngine, count: int) -> list[float]:
        norms = []
        for _ in range(count):
            await engine.forward_backward(BATCH, squared)
            norms.append(await engine.optim_step(lr=3e-3))
        return norms

    async def work() -> None:
        engine = LocalEngine(llama(dtype=dtype), end_ids=(2,), weight_decay=0.1)
        await steps(engine, 3)
        await engine.save(tmp_path)
        expected = await steps(engine, 3)
        # other weights, as a new process would have before it loads
        other = llama(dtype=dtype)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
        resumed = LocalEngine(other, end_ids=(2,), weight_decay=0.1)
        await resumed.load(tmp_path)
        assert await steps(resumed, 3) == expected
        for name, tensor in engine.model.state_dict().items():
            assert torch.equal(resumed.model.state_dict()[name], tensor)

    asyncio.run(work())


def test_a_checkpoint_of_another_shape_is_refused(tmp_path: Path) -> None:
    asyncio.run(LocalEngine(llama(layers=3), end_ids=(2,)).save(tmp_path))
    engine = LocalEngine(llama(), end_ids=(2,))
    with pytest.raises(CheckpointError, match="choose another checkpoint"):
        asyncio.run(engine.load(tmp_path))


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    engine = LocalEngine(llama(), end_ids=(2,))
    asyncio.run(engine.save(tmp_path))
    (tmp_path / "learner.pt").write_bytes(b"half a file")
    with pytest.raises(CheckpointError, match="choose another checkpoint"):
        asyncio.run(engine.load(tmp_path))


# ---- rows ----


def test_each_prompt_is_prefilled_once_even_when_its_samples_begin_at_different_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prefilled: list[int] = []
    original = CachedDecoder.prefill

    def watched(self: CachedDecoder, sequences: list[tuple[int, ...]]) -> object:
        prefilled.extend(map(len, sequences))
        return original(self, sequences)

    monkeypatch.setattr(CachedDecoder, "prefill", watched)
    engine = LocalEngine(llama(), end_ids=(2,), config=LocalEngineConfig(max_rows=3))
    found = asyncio.run(
        drawn(engine, request("a", length=4, num_samples=7), request("b", length=9, num_samples=5))
    )
    assert len(found) == 12
    assert sorted(prefilled) == [4, 9]


def test_siblings_asked_for_one_by_one_share_a_prefill(monkeypatch: pytest.MonkeyPatch) -> None:
    prefilled: list[int] = []
    original = CachedDecoder.prefill

    def watched(self: CachedDecoder, sequences: list[tuple[int, ...]]) -> object:
        prefilled.extend(map(len, sequences))
        return original(self, sequences)

    monkeypatch.setattr(CachedDecoder, "prefill", watched)
    engine = LocalEngine(llama(), end_ids=(2,), config=LocalEngineConfig(max_rows=2))
    siblings = [replace(request(f"{i}", num_samples=1), seed=i) for i in range(5)]
    found = asyncio.run(drawn(engine, *siblings))
    assert len({c.request_id for c in found}) == 5
    assert prefilled == [4]


def test_finished_rows_cost_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    widths: list[int] = []
    original = CachedDecoder.step

    def watched(self: CachedDecoder, tokens: list[int]) -> Tensor:
        widths.append(len(tokens))
        return original(self, tokens)

    monkeypatch.setattr(CachedDecoder, "step", watched)
    engine = LocalEngine(llama(), end_ids=(2,))
    short, long = request("a", num_samples=5, max_tokens=2), request("b", num_samples=1, max_tokens=6)
    found = asyncio.run(drawn(engine, short, long))
    # every token but a row's first costs one row of one step
    assert sum(widths) == sum(len(c.token_ids) - 1 for c in found)
    assert max(widths) <= 6


def test_the_event_loop_turns_while_rows_are_drawn() -> None:
    async def work() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counter = asyncio.create_task(count())
        await drawn(LocalEngine(llama(), end_ids=()), request(max_tokens=20))
        counter.cancel()
        return turns

    assert asyncio.run(work()) >= 19


def test_a_model_without_attention_is_sampled_all_the_same() -> None:
    torch.manual_seed(0)
    config = MambaConfig(vocab_size=31, hidden_size=16, state_size=4, num_hidden_layers=1)
    engine = LocalEngine(MambaForCausalLM(config), end_ids=(2,))

    async def work() -> list[Completion]:
        await engine.sync_weights()
        return await drawn(engine, request("a", length=3), request("b", length=8))

    assert len(asyncio.run(work())) == 4
