"""Tiny random models of many kinds, made on the spot."""

from collections.abc import Callable

import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCABULARY = 29
CONTEXT = 64
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SLIDING = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}

ARCHITECTURES: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=8, tie_word_embeddings=True)),
    # every other layer sees five tokens back
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**SHAPE, **SLIDING, head_dim=8)),
    # the same, and logits are capped
    "gemma2": lambda: Gemma2ForCausalLM(
        Gemma2Config(**SHAPE, **SLIDING, head_dim=8, final_logit_softcapping=3.0)
    ),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=5)),
    # learnt positions, dropout in its configuration
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=4, n_positions=CONTEXT, eos_token_id=2)
    ),
    # logits are scaled
    "cohere": lambda: CohereForCausalLM(CohereConfig(**SHAPE, logit_scale=0.25)),
    # positions come from the mask, not from an argument
    "bloom": lambda: BloomForCausalLM(
        BloomConfig(vocab_size=VOCABULARY, hidden_size=16, n_layer=2, n_head=4, eos_token_id=2)
    ),
    # no attention at all
    "mamba": lambda: MambaForCausalLM(
        MambaConfig(vocab_size=VOCABULARY, hidden_size=16, state_size=4, num_hidden_layers=2, expand=2)
    ),
}


def tiny_model(name: str, *, seed: int = 0) -> PreTrainedModel:
    """Random weights, larger than at initialisation, so that distributions are far from uniform."""
    torch.manual_seed(seed)
    model = ARCHITECTURES[name]()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.15)
    return model
