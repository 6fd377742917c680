"""Stand-ins have the shape of the model they stand for, and next to nothing else."""

import os
from pathlib import Path

import pytest
import torch

from peira.build.model import build_model, build_tokenizer
from peira.config.model import ModelConfig
from peira.errors import ModelError
from peira.models.hf import check_weights, load_config
from peira.models.memory import num_parameters
from peira.models.standin import standin_config, write_standin
from peira.types.task import Message


@pytest.mark.parametrize(
    ("like", "expected"),
    [
        # By layer: q 896*896+896, k and v 896*128+128 each, o 896*896, three matrices of 896*4864, two norms;
        # 24 layers, 151936*896 tied embeddings, a last norm.
        (
            "Qwen/Qwen2.5-0.5B-Instruct",
            24 * (896 * 896 + 896 + 2 * (896 * 128 + 128) + 896 * 896 + 3 * 896 * 4864 + 2 * 896)
            + 151936 * 896
            + 896,
        ),
        (
            "Qwen/Qwen2.5-1.5B-Instruct",
            28 * (1536 * 1536 + 1536 + 2 * (1536 * 256 + 256) + 1536 * 1536 + 3 * 1536 * 8960 + 2 * 1536)
            + 151936 * 1536
            + 1536,
        ),
    ],
)
def test_the_full_shape_has_as_many_parameters_as_its_model(like: str, expected: int) -> None:
    assert num_parameters(standin_config(like)) == expected


def test_the_published_sizes_are_met() -> None:
    # The model cards say 0.49 B and 1.54 B.
    assert num_parameters(standin_config("Qwen/Qwen2.5-0.5B")) == pytest.approx(0.49e9, rel=0.02)
    assert num_parameters(standin_config("Qwen/Qwen2.5-1.5B")) == pytest.approx(1.54e9, rel=0.02)


def test_zeros_take_no_disk_and_make_every_token_equally_likely(tmp_path: Path) -> None:
    write_standin(tmp_path / "model", scale=0.1)
    check_weights(tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    config = load_config(tmp_path / "model")
    assert weights.stat().st_size > 2 * num_parameters(config)
    if os.stat(weights).st_blocks * 512 > 100_000:
        pytest.skip("this file system does not know holes")
    model, tokenizer, _ = build_model(ModelConfig(name=str(tmp_path / "model")), "cpu")
    ids = torch.tensor([tokenizer.render((Message(role="user", content="Hi"),))])
    logits = model(ids).logits
    assert torch.equal(logits, torch.zeros_like(logits))


def test_a_small_random_one_speaks_chatml_and_keeps_the_heads(tmp_path: Path) -> None:
    write_standin(tmp_path / "model", scale=0.1, weights="random")
    model, tokenizer, _ = build_model(ModelConfig(name=str(tmp_path / "model")), "cpu")
    text = tokenizer.render_text((Message(role="user", content="Hi"),))
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(tokenizer.end_ids, skip_special_tokens=False) == "<|im_end|>"
    assert tokenizer.warnings == []
    # 10 % of 14 heads is one pair, of 64 as in the original; 10 % of 24 layers is 2; of 151936 rows 15194.
    config = model.config
    assert (config.num_attention_heads, config.hidden_size, config.num_hidden_layers) == (2, 128, 2)
    assert (config.num_key_value_heads, config.vocab_size) == (2, 15194)
    ids = torch.tensor([tokenizer.render("Hi")])
    assert torch.isfinite(model(ids).logits).all()


def test_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_standin(tmp_path / name, scale=0.02, weights="random", seed=seed)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_the_tokenizer_can_be_had_without_the_weights(tmp_path: Path) -> None:
    write_standin(tmp_path / "model", scale=0.02)
    (tmp_path / "model" / "model.safetensors").unlink()
    assert build_tokenizer(ModelConfig(name=str(tmp_path / "model"))).vocabulary_size == 259


@pytest.mark.parametrize(
    ("like", "scale", "said"),
    [("Qwen/Qwen9-1T", 1.0, "like = 'Qwen/Qwen9-1T'"), ("Qwen/Qwen2.5-0.5B", 0.0, "scale = 0.0")],
)
def test_what_is_not_known_is_refused(tmp_path: Path, like: str, scale: float, said: str) -> None:
    with pytest.raises(ModelError) as refused:
        write_standin(tmp_path / "model", like=like, scale=scale)
    assert said in str(refused.value)
    assert not (tmp_path / "model").exists()
