"""How much memory a run will want at its peak, from `config.json` and the run's arithmetic alone.

The three phases of a step hold different things, and the largest of them is the peak:

    sample   weights, what the optimizer keeps, keys and values of the rows, logits of one token per row
    learn    weights, what the optimizer keeps, gradients, activations of one micro-batch, its probabilities
    update   weights, what the optimizer keeps, gradients

The count assumes layers of attention and a gated MLP, as nearly every language model has. It errs on the high
side: the longest prompts and completions are taken for granted.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig

from peira.models.forward import CHUNK_BYTES, KEEP_BYTES

PROCESS_BYTES = 700 * 1024**2
"""A Python process with torch and transformers loaded and warm, before any model."""
PREFILL_TOKENS = 4096
"""What the local sampler computes together of prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The arithmetic of a run, as far as memory is concerned."""

    num_rollouts: int
    """Of one step."""
    group_size: int
    max_rows: int
    """Completions decoded together."""
    prompt_tokens: int
    """Longest prompt."""
    max_tokens: int
    """Longest completion."""
    micro_batch_tokens: int
    gradient_checkpointing: bool = False
    shares_prompts: bool = True
    num_references: int = 0
    """Frozen models beside the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Bytes by phase and holder."""

    phases: Mapping[str, Mapping[str, int]]

    @property
    def peak_phase(self) -> str:
        """The phase that wants most."""
        return max(self.phases, key=lambda phase: sum(self.phases[phase].values()))

    @property
    def peak_bytes(self) -> int:
        """What the peak phase wants in all."""
        return sum(self.phases[self.peak_phase].values())

    @property
    def largest_holder(self) -> str:
        """What takes most of it at the peak."""
        holders = self.phases[self.peak_phase]
        return max(holders, key=lambda holder: holders[holder])

    def lines(self) -> list[str]:
        """For people: the peak, its largest holder, and a line per phase."""
        gib = 1024**3
        lines = [
            f"about {self.peak_bytes / gib:.1f} GiB at the peak ({self.peak_phase}); most of it "
            f"{self.largest_holder}; {ADVICE.get(self.largest_holder, 'a smaller model')} makes it less"
        ]
        for phase, holders in self.phases.items():
            parts = ", ".join(f"{holder} {size / gib:.2f}" for holder, size in holders.items() if size)
            lines.append(f"{phase:<7} {sum(holders.values()) / gib:5.2f} GiB: {parts}")
        return lines


ADVICE = {
    "activations": "a smaller micro_batch_tokens, or engine.gradient_checkpointing=true,",
    "probabilities": "a smaller micro_batch_tokens",
    "keys and values": "a smaller engine.max_rows or sampling.max_tokens",
    "references": "a KL coefficient of 0",
}


def num_parameters(config: PretrainedConfig) -> int:
    """Exact, tied weights once, without allocating any."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


def estimate_memory(
    config: PretrainedConfig,
    workload: Workload,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> MemoryEstimate:
    """What the local engine will hold, phase by phase.

    Args:
        config: Of the model.
        workload: The run's arithmetic.
        dtype: Of the weights; narrow ones are trained through float32 masters.
        device: On the CPU the process itself is counted too.
    """
    text = config.get_text_config(decoder=True)
    size = dtype.itemsize
    parameters = num_parameters(config)
    hidden, layers, vocabulary = text.hidden_size, text.num_hidden_layers, text.vocab_size
    heads = text.num_attention_heads
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    head_size = getattr(text, "head_dim", None) or hidden // heads
    query, key = heads * head_size, kv_heads * head_size
    active = getattr(text, "num_experts_per_tok", None) or 1
    inner = active * (getattr(text, "moe_intermediate_size", None) or text.intermediate_size)

    narrow = size < 4
    resident = {
        "process": PROCESS_BYTES if device.type == "cpu" else 0,
        "weights": parameters * size,
        "references": workload.num_references * parameters * size,
        "optimizer": parameters * (12 if narrow else 8),  # two float32 moments, and masters of narrow weights
    }

    rows = min(workload.max_rows, workload.num_rollouts)
    columns = 1.5 * (workload.prompt_tokens + workload.max_tokens) + 128  # the cache grows by halves
    one_layer = 6 * hidden + 3 * query + 2 * key + 4 * inner
    prefilled = min(PREFILL_TOKENS, workload.num_rollouts // workload.group_size * workload.prompt_tokens)
    sample = {
        "keys and values": int(
            2 * layers * key * columns * rows * size + 2 * layers * key * prefilled * size
        ),
        "logits": 3 * rows * vocabulary * 4,
        "activations": one_layer * max(rows, prefilled) * size,
    }

    # A micro-batch takes at least one row, and never more than there is.
    longest = workload.prompt_tokens + workload.max_tokens
    tokens = min(max(workload.micro_batch_tokens, longest), workload.num_rollouts * longest)
    trained = tokens * workload.max_tokens // longest
    if workload.shares_prompts and not workload.gradient_checkpointing:
        in_rows = max(1, tokens // longest)
        groups = -(-in_rows // workload.group_size)
        tokens = in_rows * workload.max_tokens + groups * workload.prompt_tokens
    stored = layers * hidden + one_layer if workload.gradient_checkpointing else layers * one_layer
    probabilities = trained * vocabulary * 4
    learn = {
        "gradients": parameters * size,
        "activations": tokens * stored * size,
        "probabilities": (probabilities if probabilities <= KEEP_BYTES else 0) + 3 * CHUNK_BYTES,
    }
    update = {"gradients": parameters * (size + 4 if narrow else size)}
    return MemoryEstimate(
        phases={"sample": resident | sample, "learn": resident | learn, "update": resident | update}
    )
