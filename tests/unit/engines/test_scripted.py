import asyncio
import math

import pytest
import torch

from peira.engines.scripted import POSITIONS, ScriptedEngine
from peira.types.rollout import Completion, SampleRequest, SamplingParams, StopReason


def ask(num_samples: int = 3, *, prefix: tuple[int, ...] = (), **params: object) -> SampleRequest:
    return SampleRequest(
        id="a",
        prompt_ids=(3, 4, 5),
        num_samples=num_samples,
        params=SamplingParams(**params),  # type: ignore[arg-type]
        seed=0,
        prefix_ids=prefix,
    )


def said(engine: ScriptedEngine, request: SampleRequest) -> list[Completion]:
    async def work() -> list[Completion]:
        return sorted([c async for c in engine.sample([request])], key=lambda c: c.index)

    return asyncio.run(work())


def test_canned_completions_are_given_in_turn_and_ended() -> None:
    engine = ScriptedEngine(vocabulary_size=9, end_ids=(1,), completions=[(7, 8), (6, 1), ()])
    found = said(engine, ask(4))
    assert [c.token_ids for c in found] == [(7, 8, 1), (6, 1), (1,), (7, 8, 1)]
    assert {c.stop_reason for c in found} == {StopReason.END}


def test_canned_completions_are_cut_at_the_budget_and_can_be_continued() -> None:
    engine = ScriptedEngine(vocabulary_size=9, end_ids=(1,), completions=[(5, 6, 7, 8)])
    (cut,) = said(engine, ask(1, max_tokens=2))
    assert (cut.token_ids, cut.stop_reason) == ((5, 6), StopReason.LENGTH)
    (rest,) = said(engine, ask(1, prefix=(5, 6)))
    assert (rest.token_ids, rest.stop_reason) == ((7, 8, 1), StopReason.END)


def test_a_script_may_look_at_the_request() -> None:
    engine = ScriptedEngine(
        vocabulary_size=9, end_ids=(1,), completions=lambda request, index: (request.prompt_ids[0], 2 + index)
    )
    assert [c.token_ids for c in said(engine, ask(2))] == [(3, 2, 1), (3, 3, 1)]


def test_logprobs_are_those_of_the_table() -> None:
    engine = ScriptedEngine(vocabulary_size=9, end_ids=(1,), completions=[(7,)], seed=4)
    table = torch.randn(POSITIONS, 9, generator=torch.Generator().manual_seed(4)).double()
    (found,) = said(engine, ask(1, temperature=0.5))
    # the prompt has three tokens, so the completion's stand at positions 3 and 4
    for logprob, position, token in zip(found.logprobs, (3, 4), (7, 1), strict=True):
        scaled = (table[position] / 0.5).exp()
        assert logprob == pytest.approx(math.log(float(scaled[token] / scaled.sum())), abs=1e-5)


def test_every_verb_is_recorded() -> None:
    engine = ScriptedEngine(vocabulary_size=9, end_ids=(1,), completions=[(7,)])
    request = ask(1)
    said(engine, request)
    asyncio.run(engine.sync_weights())
    assert [(call.verb, call.argument) for call in engine.calls] == [
        ("sample", (request,)),
        ("sync_weights", None),
    ]
