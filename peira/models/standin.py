"""Models with the shape of a well-known one and no knowledge: they check a GPU recipe without its weights."""

import json
import struct
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen2Config

from peira.errors import ModelError
from peira.models.folder import written_whole
from peira.models.quiet import no_progress_bars
from peira.models.tiny import character_tokenizer

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_QWEN2_5: dict[str, Any] = {
    "vocab_size": 151936,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
_QWEN2_5_HALF = {
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "intermediate_size": 4864,
}
_QWEN2_5_1B5 = {
    "hidden_size": 1536,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "intermediate_size": 8960,
}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2.5-0.5B": _QWEN2_5 | _QWEN2_5_HALF,
    "Qwen/Qwen2.5-0.5B-Instruct": _QWEN2_5 | _QWEN2_5_HALF,
    "Qwen/Qwen2.5-1.5B": _QWEN2_5 | _QWEN2_5_1B5 | {"max_position_embeddings": 131072},
    "Qwen/Qwen2.5-1.5B-Instruct": _QWEN2_5 | _QWEN2_5_1B5,
}
"""Public architecture facts by hub id."""


def standin_config(like: str, *, scale: float = 1.0) -> Qwen2Config:
    """The architecture of `like`, its depth, widths and vocabulary multiplied by `scale`.

    Heads keep their size and their grouping, so that attention takes the same paths.

    Raises:
        ModelError: no facts are known of `like`, or the scale is out of range.
    """
    if like not in ARCHITECTURES:
        raise ModelError(f"standin: like = {like!r}: expected one of {', '.join(ARCHITECTURES)}")
    if not 0 < scale <= 1:
        raise ModelError(f"standin: scale = {scale}: expected a number in (0, 1]")
    facts = dict(ARCHITECTURES[like])
    head_size = facts["hidden_size"] // facts["num_attention_heads"]
    heads = max(1, round(facts["num_attention_heads"] * scale / 2)) * 2
    facts["num_attention_heads"] = heads
    facts["hidden_size"] = heads * head_size
    facts["num_hidden_layers"] = max(1, round(facts["num_hidden_layers"] * scale))
    facts["intermediate_size"] = max(64, round(facts["intermediate_size"] * scale / 64) * 64)
    facts["vocab_size"] = max(512, round(facts["vocab_size"] * scale))
    tokenizer = standin_tokenizer()
    return Qwen2Config(**facts, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)


def standin_tokenizer() -> Any:
    """A character tokenizer that speaks ChatML, as Qwen's does; it uses the first ids of the vocabulary."""
    return character_tokenizer(
        32768,
        special_tokens=SPECIAL_TOKENS,
        bos_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
    )


def write_standin(
    folder: Path,
    *,
    like: str = "Qwen/Qwen2.5-0.5B-Instruct",
    scale: float = 1.0,
    weights: Literal["zeros", "random"] = "zeros",
    seed: int = 0,
) -> None:
    """Write an ordinary bfloat16 folder of this shape, whole or not at all.

    Args:
        folder: Must not exist, or be empty.
        like: A hub id of which the architecture is known here.
        scale: Of depth, widths and vocabulary; 1 is the full shape.
        weights: zeros (norms one): every token is equally likely, and the file is sparse: even the full shape
            takes next to no disk where the file system knows holes. random: a fresh initialisation.
        seed: Of the random weights.
    """
    config = standin_config(like, scale=scale)
    with written_whole(folder) as temporary, no_progress_bars():
        standin_tokenizer().save_pretrained(temporary)
        if weights == "zeros":
            with torch.device("meta"):
                model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
            model.config.architectures = [type(model).__name__]
            model.config.save_pretrained(temporary)
            model.generation_config.save_pretrained(temporary)
            _write_zeros(model, temporary / "model.safetensors")
        else:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(temporary)


def _write_zeros(model: PreTrainedModel, path: Path) -> None:
    """A safetensors file of bfloat16 zeros, norms one, with holes instead of zeros."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    ones, end = [], 0
    for name, parameter in model.named_parameters():  # tied ones come once
        start, end = end, end + 2 * parameter.numel()
        header[name] = {"dtype": "BF16", "shape": list(parameter.shape), "data_offsets": [start, end]}
        if name.endswith("norm.weight"):
            ones.append((start, parameter.numel()))
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for start, count in ones:
            file.seek(8 + len(text) + start)
            file.write(b"\x80\x3f" * count)  # 1.0 in bfloat16, little-endian
        file.truncate(8 + len(text) + end)
