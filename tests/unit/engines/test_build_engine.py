"""From a run's settings and a folder to an engine."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from peira.build.engine import build_engine, build_reference
from peira.config.run import RunConfig
from peira.engines.local.engine import LocalEngine
from peira.engines.scripted import ScriptedEngine
from peira.errors import EngineError, ModelError
from peira.types.rollout import SampleRequest, SamplingParams
from peira.types.task import Message
from tests.unit.engines.test_learner import BATCH, llama, squared


class LetterTokenizer:
    vocabulary_size = 31
    end_ids = (2,)
    pad_id = 0

    def render(self, prompt: str | tuple[Message, ...]) -> tuple[int, ...]:
        return tuple(3 + ord(letter) - ord("a") for letter in str(prompt))

    def decode(self, token_ids: Any, *, skip_special_tokens: bool = True) -> str:
        return "".join(chr(ord("a") + i - 3) for i in token_ids if i > 2)


def run_with(**changes: Any) -> RunConfig:
    return RunConfig.model_validate(
        {"model": "unused", "data": "unused", "verifiers": ["exact"], **changes},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    llama().save_pretrained(tmp_path)
    return tmp_path


def test_a_local_engine_holds_the_folders_weights(folder: Path) -> None:
    run = run_with(engine={"kind": "local", "device": "cpu"}, optimizer={"max_grad_norm": 0.5})
    engine = build_engine(run, folder, LetterTokenizer())
    assert isinstance(engine, LocalEngine)
    expected = asyncio.run(LocalEngine(llama(), end_ids=(2,)).logprobs(BATCH))
    torch.testing.assert_close(asyncio.run(engine.logprobs(BATCH)), expected)
    assert engine.model.dtype == torch.float32


def test_a_reference_scores_and_does_not_learn(folder: Path) -> None:
    run = run_with(engine={"kind": "local", "device": "cpu"})
    reference = build_reference(run, folder, LetterTokenizer())
    assert asyncio.run(reference.logprobs(BATCH)).shape == BATCH.token_ids.shape
    with pytest.raises(EngineError, match="frozen"):
        asyncio.run(reference.forward_backward(BATCH, squared))


def test_a_scripted_engine_says_the_configured_texts() -> None:
    run = run_with(engine={"kind": "scripted", "completions": ["ab", "c"]})
    engine = build_engine(run, Path("nowhere"), LetterTokenizer())
    assert isinstance(engine, ScriptedEngine)
    request = SampleRequest(id="a", prompt_ids=(3,), num_samples=3, params=SamplingParams(), seed=0)

    async def work() -> list[tuple[int, ...]]:
        return [
            c.token_ids for c in sorted([c async for c in engine.sample([request])], key=lambda c: c.index)
        ]

    assert asyncio.run(work()) == [(3, 4, 2), (5, 2), (3, 4, 2)]


def test_a_device_that_is_not_here_is_refused_before_a_model_loads() -> None:
    run = run_with(engine={"kind": "local", "device": "cuda:99"})
    with pytest.raises(ModelError, match="cuda:99"):
        build_engine(run, Path("nowhere"), LetterTokenizer())
