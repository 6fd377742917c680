"""Character-level Llama models of a few layers, pretrained on procedural traces in minutes on a CPU.

Each is an ordinary `transformers` folder, so every engine loads it like any other model.
"""

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from peira.models.folder import written_whole
from peira.models.traces import Problem, Trace, TraceSpec, draw_traces, heldout_problems

SPECIAL_TOKENS = ("<|pad|>", "<|bos|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyShape:
    """Sizes of a tiny Llama."""

    hidden_size: int = 128
    num_layers: int = 3
    num_heads: int = 4
    num_kv_heads: int = 2
    intermediate_size: int = 256
    max_length: int = 512
    """Context in tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Supervised next-token training: AdamW, linear warm-up, cosine to a tenth of the peak."""

    steps: int = 1000
    batch_size: int = 128
    """Traces per step."""
    lr: float = 3e-3
    warmup_steps: int = 50
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0

    def lr_at(self, step: int) -> float:
        """Learning rate of the step with this index, from 0."""
        if step < self.warmup_steps:
            return self.lr * (step + 1) / self.warmup_steps
        progress = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        return self.lr * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress)))


def character_tokenizer(
    max_length: int = 512,
    *,
    special_tokens: tuple[str, ...] = SPECIAL_TOKENS,
    bos_token: str | None = "<|bos|>",
    eos_token: str = "<|end|>",
    pad_token: str = "<|pad|>",
    chat_template: str = CHAT_TEMPLATE,
) -> PreTrainedTokenizerFast:
    """One token per byte behind a few special ones: nothing is ever unknown, every text comes back whole.

    Plain text gets the `bos_token` in front, where there is one, as many real tokenizers do; a chat template
    brings its own.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate((*special_tokens, *alphabet))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    if bos_token is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos_token} $A", special_tokens=[(bos_token, vocabulary[bos_token])]
        )
    tokenizer.add_special_tokens(list(special_tokens))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=bos_token,
        eos_token=eos_token,
        pad_token=pad_token,
        chat_template=chat_template,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )


def tiny_config(shape: TinyShape, tokenizer: PreTrainedTokenizerFast) -> LlamaConfig:
    """The architecture of a tiny model: Llama with tied embeddings and grouped keys and values."""
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        intermediate_size=shape.intermediate_size,
        max_position_embeddings=shape.max_length,
        tie_word_embeddings=True,
        initializer_range=0.05,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def _prompt_ids(tokenizer: PreTrainedTokenizerFast, prompt: str) -> list[int]:
    messages = [{"role": "user", "content": prompt}]
    ids: list[int] = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    return ids


def _collate(tokenizer: PreTrainedTokenizerFast, traces: Sequence[Trace]) -> tuple[Tensor, Tensor]:
    """Ids and labels `[N, T]`, padded right; only the completion and its end token carry labels."""
    rows = []
    for trace in traces:
        prompt = _prompt_ids(tokenizer, trace.problem.prompt)
        completion = [*tokenizer.encode(trace.text, add_special_tokens=False), tokenizer.eos_token_id]
        rows.append((prompt + completion, [-100] * len(prompt) + completion))
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), longest), tokenizer.pad_token_id)
    labels = torch.full((len(rows), longest), -100)
    for row, (row_ids, row_labels) in enumerate(rows):
        ids[row, : len(row_ids)] = torch.tensor(row_ids)
        labels[row, : len(row_labels)] = torch.tensor(row_labels)
    return ids, labels


def fit(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    specs: tuple[TraceSpec, ...],
    training: Training,
    *,
    seed: int,
    heldout_fraction: float,
    progress: Callable[[int, float], None] = lambda step, loss: None,
) -> list[float]:
    """Train in place on fresh traces; returns the loss of every step (mean over completion tokens, in nats).

    The same seed and the same number of threads give the same weights, bit for bit.
    """
    draw = random.Random(seed)
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": training.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        betas=(0.9, 0.98),
    )
    losses = []
    model.train()
    for step in range(training.steps):
        traces = draw_traces(specs, draw, training.batch_size, heldout_fraction=heldout_fraction)
        ids, labels = _collate(tokenizer, traces)
        # Padding stands on the right, so causal attention never sees it.
        logits = model(input_ids=ids).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), training.max_grad_norm)
        for group in optimizer.param_groups:
            group["lr"] = training.lr_at(step)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        progress(step + 1, losses[-1])
    model.eval()
    return losses


@torch.no_grad()
def completions(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    prompts: Sequence[str],
    *,
    samples: int,
    temperature: float = 1.0,
    max_tokens: int = 128,
    batch_size: int = 1024,
) -> list[list[str]]:
    """`samples` completions of each prompt through `transformers` generation; temperature 0 is greedy."""
    rows = [_prompt_ids(tokenizer, prompt) for prompt in prompts for _ in range(samples)]
    texts: list[str] = []
    for start in range(0, len(rows), batch_size):
        batch = rows[start : start + batch_size]
        longest = max(map(len, batch))
        ids = torch.tensor([[tokenizer.pad_token_id] * (longest - len(row)) + row for row in batch])
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in batch])
        sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        drawn = model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=max_tokens,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            **(sampling if temperature > 0 else {"do_sample": False}),
        )
        texts += tokenizer.batch_decode(drawn[:, longest:], skip_special_tokens=True)
    return [texts[i : i + samples] for i in range(0, len(texts), samples)]


def ends_with_answer(completion: str, spec: TraceSpec, answer: str) -> bool:
    """Whether the completion ends as a trace of this component does, with this answer."""
    return (
        completion.endswith(spec.final.format(answer=answer))
        and completion.split()[-1] == (spec.final.format(answer=answer).split()[-1])
    )


def measure(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    spec: TraceSpec,
    problems: Sequence[Problem],
    *,
    samples: int,
    seed: int,
) -> dict[str, float]:
    """Accuracy on these problems: greedy, one sample (pass@1), any of `samples` (pass@samples)."""
    prompts = [problem.prompt for problem in problems]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        greedy = completions(model, tokenizer, prompts, samples=1, temperature=0.0)
        sampled = completions(model, tokenizer, prompts, samples=samples)
    right = [
        [ends_with_answer(text, spec, problem.answer) for text in texts]
        for texts, problem in zip(sampled, problems, strict=True)
    ]
    greedy_right = [
        ends_with_answer(texts[0], spec, p.answer) for texts, p in zip(greedy, problems, strict=True)
    ]
    return {
        "questions": len(problems),
        "samples": samples,
        "greedy": sum(greedy_right) / len(problems),
        "pass@1": sum(map(sum, right)) / (len(problems) * samples),
        f"pass@{samples}": sum(map(any, right)) / len(problems),
    }


def pretrain(
    folder: Path,
    *,
    shape: TinyShape,
    specs: tuple[TraceSpec, ...],
    training: Training,
    seed: int = 0,
    heldout_fraction: float = 0.1,
    questions: int = 128,
    samples: int = 16,
    recipe: str = "",
    progress: Callable[[int, float], None] = lambda step, loss: None,
) -> dict[str, object]:
    """Make a tiny model and write it into `folder`, whole or not at all.

    The folder holds model and tokenizer, `recipe.yaml` (the text in `recipe`) and `metrics.json`.

    Returns:
        What stands in `metrics.json`: size, final loss, and accuracy on held-out problems by kind.
    """
    with written_whole(folder) as temporary, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        tokenizer = character_tokenizer(shape.max_length)
        model = LlamaForCausalLM(tiny_config(shape, tokenizer))
        losses = fit(
            model, tokenizer, specs, training, seed=seed, heldout_fraction=heldout_fraction, progress=progress
        )
        last = losses[-max(1, len(losses) // 20) :]
        accuracy = {}
        for spec in specs:
            problems = heldout_problems(
                spec, random.Random(seed + 1), questions, heldout_fraction=heldout_fraction
            )
            if problems:
                accuracy[spec.kind] = measure(model, tokenizer, spec, problems, samples=samples, seed=seed)
        metrics: dict[str, object] = {
            "num_parameters": sum(p.numel() for p in model.parameters()),
            "final_loss": sum(last) / len(last),
            "accuracy": accuracy,
        }
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        if recipe:
            (temporary / "recipe.yaml").write_text(recipe)
        (temporary / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
    return metrics
