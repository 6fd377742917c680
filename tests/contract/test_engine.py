"""What every engine promises, whatever stands behind it. A new engine is one more line in `ENGINES`."""

import asyncio
import math
import string
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from scipy import stats

from peira.algorithms.batch import TrainBatch
from peira.config.engine import LocalEngineConfig
from peira.engines.local.engine import LocalEngine
from peira.engines.protocol import Engine
from peira.engines.scripted import ScriptedEngine
from peira.errors import CheckpointError, EngineError
from peira.types.rollout import Completion, SampleRequest, SamplingParams, StopReason
from peira.types.task import Message
from tests.contract.architectures import ARCHITECTURES, CONTEXT, VOCABULARY, tiny_model

END = 2
T = TypeVar("T")


class LetterTokenizer:
    """Ids 3 and up are letters, 0 to 2 are special."""

    vocabulary_size = VOCABULARY
    end_ids = (END,)
    pad_id = 0

    def render(self, prompt: str | tuple[Message, ...]) -> tuple[int, ...]:
        assert isinstance(prompt, str)
        return tuple(3 + string.ascii_lowercase.index(letter) for letter in prompt)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        specials = ("",) * 3 if skip_special_tokens else ("<pad>", "<start>", "<end>")
        return "".join(specials[i] if i < 3 else string.ascii_lowercase[i - 3] for i in token_ids)


def scripted(max_rows: int = 128) -> Engine:
    return ScriptedEngine(
        vocabulary_size=VOCABULARY, end_ids=(END,), tokenizer=LetterTokenizer(), context_tokens=CONTEXT
    )


def local(name: str, **settings: Any) -> Callable[..., Engine]:
    def build(max_rows: int = 128) -> Engine:
        config = LocalEngineConfig(max_rows=max_rows, **settings)
        return LocalEngine(tiny_model(name), end_ids=(END,), tokenizer=LetterTokenizer(), config=config)

    return build


def local_with_a_copy(max_rows: int = 128) -> Engine:
    """The sampler holds other weights until the first sync."""
    return LocalEngine(
        tiny_model("llama"),
        end_ids=(END,),
        tokenizer=LetterTokenizer(),
        config=LocalEngineConfig(max_rows=max_rows),
        sampler_model=tiny_model("llama", seed=1),
    )


ENGINES: dict[str, Callable[..., Engine]] = {
    "scripted": scripted,
    **{name: local(name) for name in ARCHITECTURES},
    "llama_copied": local_with_a_copy,
    "llama_checkpointed": local("llama", gradient_checkpointing=True),
}
UNLIMITED = {"bloom", "mamba"}  # their configurations name no context


@pytest.fixture(params=ENGINES)
def build(request: pytest.FixtureRequest) -> Callable[..., Engine]:
    return ENGINES[request.param]


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


async def drawn(engine: Engine, *requests: SampleRequest) -> list[Completion]:
    """All completions, in the order of the requests and their samples."""
    order = {request.id: place for place, request in enumerate(requests)}
    found = [completion async for completion in engine.sample(requests)]
    return sorted(found, key=lambda c: (order[c.request_id], c.index))


def ask(
    id: str, length: int, *, num_samples: int = 3, seed: int = 7, prefix: Sequence[int] = (), **params: Any
) -> SampleRequest:
    return SampleRequest(
        id=id,
        prompt_ids=tuple(3 + (5 * i + length) % 20 for i in range(length)),
        num_samples=num_samples,
        params=SamplingParams(**{"max_tokens": 9} | params),
        seed=seed,
        prefix_ids=tuple(prefix),
    )


THREE = (ask("short", 2, seed=1), ask("long", 11, seed=2), ask("middle", 6, num_samples=2, seed=3))


def batch_of(
    requests: Sequence[SampleRequest], completions: Sequence[Completion], *, temperature: float = 1.0
) -> TrainBatch:
    """Completions as a batch, weights that differ from token to token."""
    by_id = {request.id: request for request in requests}
    prompts = [by_id[c.request_id].prompt_ids for c in completions]
    lengths = [len(p) + len(c.token_ids) for p, c in zip(prompts, completions, strict=True)]
    shape = (len(completions), max(lengths))
    token_ids, mask = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool)
    logprobs = torch.full(shape, math.nan)  # columns outside the mask may hold anything
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        inside = slice(len(prompt), lengths[row])
        token_ids[row, : lengths[row]] = torch.tensor(prompt + completion.token_ids)
        mask[row, inside] = True
        logprobs[row, inside] = torch.tensor(completion.logprobs)
    weights = torch.linspace(-1, 1, mask.numel()).reshape(shape)
    return TrainBatch(
        token_ids=token_ids,
        lengths=torch.tensor(lengths),
        prompt_lengths=torch.tensor([len(p) for p in prompts]),
        group=torch.tensor([list(by_id).index(c.request_id) for c in completions]),
        mask=mask,
        advantages=torch.full(shape, math.nan),
        weights=torch.where(mask, weights, math.nan),
        sampling_logprobs=logprobs,
        old_logprobs=logprobs,
        policy_version=torch.tensor([c.policy_version for c in completions]),
        temperature=temperature,
    )


def negative_logprob(logprobs: torch.Tensor, batch: TrainBatch) -> torch.Tensor:
    return torch.where(batch.mask, -logprobs, 0.0)


async def synced(build: Callable[..., Engine], **options: Any) -> Engine:
    engine = build(**options)
    await engine.sync_weights()
    return engine


# ---- sampling ----


def test_every_request_gets_exactly_its_samples(build: Callable[..., Engine]) -> None:
    async def work() -> list[Completion]:
        return await drawn(await synced(build), *THREE)

    found = run(work())
    assert [(c.request_id, c.index) for c in found] == [
        *(("short", i) for i in range(3)),
        *(("long", i) for i in range(3)),
        *(("middle", i) for i in range(2)),
    ]
    for c in found:
        assert 1 <= len(c.token_ids) <= 9
        assert (c.stop_reason is StopReason.END) == (c.token_ids[-1] == END)
        assert c.stop_reason is StopReason.END or len(c.token_ids) == 9
        assert END not in c.token_ids[:-1]


def test_samples_of_a_request_differ(build: Callable[..., Engine]) -> None:
    async def work() -> list[Completion]:
        return await drawn(await synced(build), ask("a", 4, num_samples=8, max_tokens=12))

    assert len({c.token_ids for c in run(work())}) > 4


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampling_logprobs_equal_learner_logprobs(build: Callable[..., Engine], temperature: float) -> None:
    async def work() -> tuple[torch.Tensor, TrainBatch]:
        engine = await synced(build)
        requests = [replace(r, params=replace(r.params, temperature=temperature)) for r in THREE]
        batch = batch_of(requests, await drawn(engine, *requests), temperature=temperature)
        return await engine.logprobs(batch), batch

    logprobs, batch = run(work())
    gap = (logprobs - batch.sampling_logprobs)[batch.mask].abs().max()
    assert gap < 1e-4
    assert (logprobs[~batch.mask] == 0).all()


def test_the_same_seed_gives_the_same_completion_in_any_company(build: Callable[..., Engine]) -> None:
    async def work() -> None:
        together = await drawn(await synced(build), *THREE)
        alone = [c for r in THREE for c in await drawn(await synced(build), r)]
        crowded = await drawn(await synced(build, max_rows=2), *THREE)
        backwards = await drawn(await synced(build, max_rows=3), *THREE[::-1])
        expected = {(c.request_id, c.index): c.token_ids for c in together}
        for others in (alone, crowded, backwards):
            assert {(c.request_id, c.index): c.token_ids for c in others} == expected

    run(work())


def test_another_seed_gives_another_completion(build: Callable[..., Engine]) -> None:
    async def work() -> None:
        engine = await synced(build)
        first, second = (
            await drawn(engine, ask("a", 5, seed=1, max_tokens=20)),
            await drawn(engine, ask("a", 5, seed=2, max_tokens=20)),
        )
        assert [c.token_ids for c in first] != [c.token_ids for c in second]

    run(work())


def test_a_cut_completion_goes_on_as_if_nobody_had_cut_it(build: Callable[..., Engine]) -> None:
    async def work() -> None:
        engine = await synced(build)
        whole = (await drawn(engine, ask("a", 4, num_samples=1, seed=5, max_tokens=12)))[0]
        assert len(whole.token_ids) > 3, "choose another seed"
        for cut in range(1, len(whole.token_ids)):
            # sample 0 of the same seed, told what exists already and how much is left
            rest = ask("a", 4, num_samples=1, seed=5, prefix=whole.token_ids[:cut], max_tokens=12 - cut)
            tail = (await drawn(engine, rest))[0]
            assert tail.token_ids == whole.token_ids[cut:]
            assert tail.logprobs == pytest.approx(whole.logprobs[cut:], abs=1e-4)
            assert tail.stop_reason is whole.stop_reason

    run(work())


def test_abort_gives_back_what_there_is(build: Callable[..., Engine]) -> None:
    async def work() -> None:
        engine = await synced(build, max_rows=2)
        if not engine.capabilities.partial_rollouts:
            return
        request = ask("a", 4, num_samples=4, seed=5, max_tokens=20)
        whole = await drawn(engine, request)

        async def stop_soon() -> None:
            for _ in range(6):
                await asyncio.sleep(0)
            engine.abort()

        stopper = asyncio.create_task(stop_soon())
        parts = await drawn(engine, request)
        await stopper
        assert [c.index for c in parts] == [0, 1, 2, 3]
        assert any(c.stop_reason is StopReason.ABORT for c in parts)
        for part, complete in zip(parts, whole, strict=True):
            assert complete.token_ids[: len(part.token_ids)] == part.token_ids
        again = await drawn(engine, request)
        assert [c.token_ids for c in again] == [c.token_ids for c in whole]

    run(work())


def test_a_consumer_may_leave_early(build: Callable[..., Engine]) -> None:
    async def work() -> None:
        engine = await synced(build)
        before = await drawn(engine, *THREE)
        running = engine.sample(THREE)
        async for _ in running:
            break
        await running.aclose()
        assert [c.token_ids for c in await drawn(engine, *THREE)] == [c.token_ids for c in before]

    run(work())


def test_greedy_takes_the_likeliest_token(build: Callable[..., Engine]) -> None:
    async def work() -> None:
        engine = await synced(build)
        request = ask("a", 5, num_samples=2, temperature=0.0, max_tokens=4)
        first, second = await drawn(engine, request)
        assert first.token_ids == second.token_ids
        assert first.logprobs == (0.0,) * len(first.token_ids)
        best = (await next_token_logprobs(engine, request)).argmax()
        assert first.token_ids[0] == int(best)

    run(work())


async def next_token_logprobs(engine: Engine, request: SampleRequest) -> torch.Tensor:
    """The learner's distribution after the prompt: one row per token of the vocabulary, [V]."""
    rows = [
        Completion(
            request_id=request.id,
            index=token,
            token_ids=(token,),
            logprobs=(0.0,),
            stop_reason=StopReason.LENGTH,
            policy_version=0,
        )
        for token in range(VOCABULARY)
    ]
    return (await engine.logprobs(batch_of([request], rows)))[:, -1].double()


def filtered(logprobs: torch.Tensor, temperature: float, top_k: int, top_p: float) -> list[float]:
    """Temperature, then top-k, then top-p, in plain Python: probabilities by token."""
    raw = [math.exp(float(x) / temperature) for x in logprobs]
    p = [x / sum(raw) for x in raw]
    order = sorted(range(len(p)), key=lambda token: -p[token])
    if top_k > 0:
        order = order[:top_k]
    mass = sum(p[token] for token in order)
    kept: list[int] = []
    for token in order:
        if sum(p[t] / mass for t in kept) < top_p:
            kept.append(token)
    left = sum(p[token] for token in kept)
    return [p[token] / left if token in kept else 0.0 for token in range(len(p))]


FILTERS = [(0.5, 0, 1.0), (1.7, 5, 1.0), (1.0, 0, 0.6), (0.8, 6, 0.7)]


@pytest.mark.parametrize(
    ("name", "temperature", "top_k", "top_p"),
    [
        *((name, 1.0, 0, 1.0) for name in ENGINES),
        *((name, *filters) for name in ("scripted", "llama", "mamba") for filters in FILTERS),
    ],
)
def test_tokens_follow_the_distribution_they_say_they_do(
    name: str, temperature: float, top_k: int, top_p: float
) -> None:
    count = 2000

    async def work() -> tuple[torch.Tensor, list[Completion]]:
        engine = await synced(ENGINES[name], max_rows=500)
        request = ask(
            "a", 5, num_samples=count, max_tokens=1, temperature=temperature, top_k=top_k, top_p=top_p
        )
        return await next_token_logprobs(engine, request), await drawn(engine, request)

    logprobs, found = run(work())
    expected = filtered(logprobs, temperature, top_k, top_p)
    seen = [0] * VOCABULARY
    for completion in found:
        token = completion.token_ids[0]
        seen[token] += 1
        assert completion.logprobs[0] == pytest.approx(math.log(expected[token]), abs=1e-4)
    # tokens expected fewer than five times are counted together, as the test asks
    rare = [t for t in range(VOCABULARY) if expected[t] * count < 5]
    common = [t for t in range(VOCABULARY) if t not in rare]
    counts = [*(seen[t] for t in common), sum(seen[t] for t in rare)]
    ideal = [*(expected[t] * count for t in common), sum(expected[t] for t in rare) * count]
    if ideal[-1] == 0:
        assert counts.pop() == 0
        ideal.pop()
    if len(ideal) > 1:
        assert stats.chisquare(counts, ideal, sum_check=False).pvalue > 1e-3


def test_stop_tokens_end_a_completion_and_stay_in_it(build: Callable[..., Engine]) -> None:
    async def work() -> None:
        engine = await synced(build)
        request = ask("a", 4, num_samples=6, seed=11, max_tokens=15)
        free = max(await drawn(engine, request), key=lambda c: len(c.token_ids))
        stop = free.token_ids[1]
        stopping = replace(request, params=replace(request.params, stop_token_ids=(stop,)))
        found = (await drawn(engine, stopping))[free.index]
        first = free.token_ids.index(stop)
        assert found.token_ids == free.token_ids[: first + 1]
        assert found.stop_reason is StopReason.END

    run(work())


def test_stop_strings_end_a_completion_at_the_token_that_completes_them(build: Callable[..., Engine]) -> None:
    async def work() -> None:
        engine = await synced(build)
        request = ask("a", 4, num_samples=6, seed=11, max_tokens=15)
        free = max(await drawn(engine, request), key=lambda c: len(c.token_ids))
        assert len(free.token_ids) >= 4, "choose another seed"
        text = LetterTokenizer().decode(free.token_ids, skip_special_tokens=False)
        pieces = [LetterTokenizer().decode([i], skip_special_tokens=False) for i in free.token_ids]
        stop = pieces[1] + pieces[2]  # spans two tokens
        end = text.index(stop) + len(stop)
        expected = next(n for n in range(1, 16) if len("".join(pieces[:n])) >= end)
        stopping = replace(request, params=replace(request.params, stop_strings=("zzzzz", stop)))
        found = (await drawn(engine, stopping))[free.index]
        assert found.token_ids == free.token_ids[:expected]
        assert found.stop_reason is StopReason.STOP_STRING
        # cut between the two tokens, the string is still seen
        rest = replace(stopping, prefix_ids=free.token_ids[: expected - 1])
        assert (await drawn(engine, rest))[free.index].token_ids == free.token_ids[expected - 1 : expected]

    run(work())


UNSAMPLABLE: list[tuple[dict[str, Any], str]] = [
    ({"prompt_ids": ()}, "prompt_ids"),
    ({"prompt_ids": (3, VOCABULARY)}, "expected ids in"),
    ({"prompt_ids": (3, -1)}, "expected ids in"),
    ({"num_samples": 0}, "num_samples"),
    ({"params": SamplingParams(max_tokens=0)}, "max_tokens"),
    ({"params": SamplingParams(temperature=-1.0)}, "temperature"),
    ({"params": SamplingParams(stop_strings=("",))}, "stop_strings"),
]


def test_a_request_nobody_can_sample_is_refused_by_name(build: Callable[..., Engine]) -> None:
    async def work() -> None:
        engine = await synced(build)
        for change, message in UNSAMPLABLE:
            with pytest.raises(EngineError, match=f"'bad'.*{message}"):
                await drawn(engine, ask("good", 3), replace(ask("bad", 3), **change))

    run(work())


@pytest.mark.parametrize("name", [name for name in ENGINES if name not in UNLIMITED])
def test_a_completion_that_could_leave_the_context_is_refused(name: str) -> None:
    async def work() -> None:
        engine = await synced(ENGINES[name])
        fits = ask("a", 10, num_samples=1, max_tokens=CONTEXT - 10)
        assert await drawn(engine, fits)
        with pytest.raises(EngineError, match=rf"'a'.* 10 tokens .* = {CONTEXT - 9}: .*at most {CONTEXT}"):
            await drawn(engine, replace(fits, params=replace(fits.params, max_tokens=CONTEXT - 9)))

    run(work())


# ---- learning ----


async def stepped(
    engine: Engine, batches: Sequence[TrainBatch], probe: TrainBatch
) -> tuple[float, torch.Tensor]:
    """Gradient norm and log-probs after one step on these micro-batches."""
    for batch in batches:
        await engine.forward_backward(batch, negative_logprob)
    norm = await engine.optim_step(lr=1e-2)
    return norm, await engine.logprobs(probe)


def test_cutting_a_batch_does_not_change_its_gradient(build: Callable[..., Engine]) -> None:
    async def work() -> None:
        engine = await synced(build)
        batch = batch_of(THREE, await drawn(engine, *THREE))
        whole = await stepped(build(), [batch], batch)
        for budget in (1, 20, 45):
            pieces = batch.split(budget)
            assert len(pieces) > 1
            cut = await stepped(build(), pieces, batch)
            assert cut[0] == pytest.approx(whole[0], rel=1e-5)
            torch.testing.assert_close(cut[1], whole[1], atol=2e-3, rtol=1e-3)

    run(work())


def test_forward_backward_tells_what_it_saw(build: Callable[..., Engine]) -> None:
    async def work() -> None:
        engine = await synced(build)
        batch = batch_of(THREE, await drawn(engine, *THREE))
        result = await engine.forward_backward(batch, negative_logprob)
        logprobs = await engine.logprobs(batch)
        torch.testing.assert_close(result.logprobs, logprobs, atol=1e-5, rtol=1e-5)
        expected = float(-(batch.weights * logprobs)[batch.mask].sum())
        assert result.loss == pytest.approx(expected, rel=1e-4, abs=1e-4)
        assert (result.entropy[batch.mask] > 0).all()
        assert (result.entropy[batch.mask] <= math.log(VOCABULARY) + 1e-5).all()
        assert (result.entropy[~batch.mask] == 0).all()

    run(work())


def test_entropy_is_that_of_the_next_token(build: Callable[..., Engine]) -> None:
    async def work() -> None:
        engine = await synced(build)
        request = ask("a", 5, num_samples=1, max_tokens=1)
        p = await next_token_logprobs(engine, request)
        batch = batch_of([request], await drawn(engine, request))
        result = await engine.forward_backward(batch, negative_logprob)
        assert float(result.entropy[0, -1]) == pytest.approx(float(-(p.exp() * p).sum()), abs=1e-4)

    run(work())


def test_a_step_moves_log_probs_the_way_the_loss_says(build: Callable[..., Engine]) -> None:
    async def work() -> None:
        engine = await synced(build)
        batch = batch_of(THREE, await drawn(engine, *THREE))
        batch = replace(batch, weights=batch.mask.float())
        before = await engine.logprobs(batch)
        norm, after = await stepped(engine, [batch], batch)
        assert norm > 0
        assert after.sum() > before.sum()
        assert engine.policy_version == 1

    run(work())


def test_sync_raises_the_version_and_changes_samples(build: Callable[..., Engine]) -> None:
    async def work() -> None:
        engine = await synced(build)
        request = ask("a", 4, num_samples=8, max_tokens=12)
        old = await drawn(engine, request)
        assert {c.policy_version for c in old} == {0}
        batch = batch_of([request], old)
        for _ in range(3):
            await stepped(engine, [replace(batch, weights=batch.mask.float())], batch)
        try:
            stale = await drawn(engine, request)
        except EngineError:  # a sampler that shares the learner's tensors cannot lag behind
            stale = old
        assert [c.token_ids for c in stale] == [c.token_ids for c in old]
        assert {c.policy_version for c in stale} == {0}
        receipt = await engine.sync_weights()
        assert receipt.policy_version == engine.policy_version == 3
        assert receipt.num_tensors > 0
        assert receipt.size_bytes > 0
        assert receipt.canary_gap < 1e-3
        new = await drawn(engine, request)
        assert {c.policy_version for c in new} == {3}
        assert [c.token_ids for c in new] != [c.token_ids for c in old]

    run(work())


def test_the_step_after_a_load_equals_the_step_after_the_save(
    build: Callable[..., Engine], tmp_path: Path
) -> None:
    async def work() -> None:
        engine = await synced(build)
        batch = batch_of(THREE, await drawn(engine, *THREE))
        await stepped(engine, [batch], batch)
        await engine.save(tmp_path)
        expected = await stepped(engine, [batch], batch)
        await stepped(engine, [batch], batch)

        await engine.load(tmp_path)
        assert engine.policy_version == 1
        again = await stepped(engine, [batch], batch)
        assert again[0] == expected[0]
        assert torch.equal(again[1], expected[1])

        fresh = build()
        await fresh.load(tmp_path)
        from_disk = await stepped(fresh, [batch], batch)
        assert from_disk[0] == expected[0]
        assert torch.equal(from_disk[1], expected[1])
        assert fresh.policy_version == 2

    run(work())


def test_loading_forgets_what_was_accumulated(build: Callable[..., Engine], tmp_path: Path) -> None:
    async def work() -> None:
        engine = await synced(build)
        batch = batch_of(THREE, await drawn(engine, *THREE))
        await engine.save(tmp_path)
        await engine.forward_backward(batch, negative_logprob)
        await engine.load(tmp_path)
        with pytest.raises(EngineError, match="call forward_backward first"):
            await engine.optim_step(lr=1e-2)

    run(work())


def test_a_folder_without_a_checkpoint_is_refused(build: Callable[..., Engine], tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="choose another checkpoint"):
        run(build().load(tmp_path))


def test_an_empty_batch_is_refused_by_name(build: Callable[..., Engine]) -> None:
    async def work() -> None:
        engine = await synced(build)
        batch = batch_of(THREE, await drawn(engine, *THREE))
        nothing = batch.select(torch.tensor([], dtype=torch.long))
        untrained = replace(batch, mask=torch.zeros_like(batch.mask))
        with pytest.raises(EngineError, match=r"forward_backward: batch = 0 sequences"):
            await engine.forward_backward(nothing, negative_logprob)
        with pytest.raises(EngineError, match=r"logprobs: batch = 0 sequences"):
            await engine.logprobs(nothing)
        with pytest.raises(EngineError, match=r"forward_backward: batch.mask = all False"):
            await engine.forward_backward(untrained, negative_logprob)
        with pytest.raises(EngineError, match=r"optim_step: .*call forward_backward first"):
            await engine.optim_step(lr=1e-2)

    run(work())


def test_a_batch_the_model_cannot_read_is_refused_by_name(build: Callable[..., Engine]) -> None:
    async def work() -> None:
        engine = await synced(build)
        batch = batch_of(THREE, await drawn(engine, *THREE))
        foreign = replace(batch, token_ids=batch.token_ids.masked_fill(batch.mask, VOCABULARY))
        with pytest.raises(EngineError, match=rf"logprobs: batch.token_ids = {VOCABULARY}: .*tokenizer"):
            await engine.logprobs(foreign)

    run(work())


@pytest.mark.parametrize("name", [name for name in ENGINES if name not in UNLIMITED])
def test_a_row_longer_than_the_context_is_refused_by_name(name: str) -> None:
    ids = tuple(3 + i % 20 for i in range(CONTEXT))
    late = Completion(
        request_id="a",
        index=0,
        token_ids=ids,
        logprobs=(0.0,) * len(ids),
        stop_reason=StopReason.LENGTH,
        policy_version=0,
    )
    with pytest.raises(EngineError, match=rf"batch.lengths = {CONTEXT + 4}: expected at most {CONTEXT}"):
        run(ENGINES[name]().forward_backward(batch_of([ask("a", 4)], [late]), negative_logprob))


def test_two_requests_of_one_name_are_refused(build: Callable[..., Engine]) -> None:
    async def work() -> None:
        with pytest.raises(EngineError, match="'a': id given twice"):
            await drawn(await synced(build), ask("a", 3), ask("a", 4))

    run(work())


def test_a_loss_that_is_not_finite_leaves_the_weights_alone(build: Callable[..., Engine]) -> None:
    async def work() -> None:
        engine = await synced(build)
        batch = batch_of(THREE, await drawn(engine, *THREE))
        before = await engine.logprobs(batch)
        with pytest.raises(EngineError, match=r"forward_backward: loss = (nan|inf).*version 0"):
            await engine.forward_backward(batch, lambda logprobs, _: logprobs * math.inf)
        with pytest.raises(EngineError, match="call forward_backward first"):
            await engine.optim_step(lr=1.0)
        assert torch.equal(await engine.logprobs(batch), before)

    run(work())


def test_a_gradient_that_is_not_finite_leaves_the_weights_alone(build: Callable[..., Engine]) -> None:
    async def work() -> None:
        engine = await synced(build)
        batch = batch_of(THREE, await drawn(engine, *THREE))
        before = await engine.logprobs(batch)
        # the loss is 0 and its slope at 0 is infinite
        await engine.forward_backward(batch, lambda logprobs, _: (logprobs - logprobs.detach()).abs().sqrt())
        with pytest.raises(EngineError, match=r"optim_step: gradient norm = (nan|inf).*version 0"):
            await engine.optim_step(lr=1.0)
        assert torch.equal(await engine.logprobs(batch), before)
        assert engine.policy_version == 0

    run(work())


def test_a_closed_engine_refuses_and_may_be_closed_again(build: Callable[..., Engine]) -> None:
    async def work() -> None:
        engine = await synced(build)
        await engine.close()
        await engine.close()
        with pytest.raises(EngineError, match="closed"):
            await engine.sync_weights()

    run(work())
