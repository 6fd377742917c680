"""GRPO from top to bottom in one file: no trainer, no engine, no configuration.

It does what `peira train` does with its default algorithm, in the plainest way that is still correct: sample
a group of completions per prompt, let a verifier judge them, turn rewards into advantages by comparing
siblings, take one gradient step. `tests/golden/test_one_file.py` holds its loss trace against the library's.

What the library adds, and why it is longer: a KV cache and shared prompts (speed), micro-batches (memory),
verifiers in killable processes, groups drawn again when they have no signal, several updates per rollout with
a real old policy, checkpoints and exact resume, the ledger, the proof that sampler and learner hold the same
weights.

    python recipes/grpo_in_one_file.py --model FOLDER --data tasks.jsonl --steps 20
"""

import argparse
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Settings:
    """Every number of the algorithm. P, G, N, T are prompts, rollouts per prompt, rows and tokens."""

    model: str
    data: str
    steps: int = 20
    prompts: int = 4  # P
    group: int = 8  # G
    max_tokens: int = 32
    temperature: float = 1.0
    lr: float = 1e-5
    clip_low: float = 0.2
    clip_high: float = 0.28
    max_grad_norm: float = 1.0
    seed: int = 0


# --- data and verifier ------------------------------------------------------------------------------------


def read_tasks(path: str) -> Iterator[dict[str, str]]:
    """Rows of a JSONL file with `prompt` and `answer`, in order, for ever."""
    rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
    while True:
        yield from rows


def verify(completion: str, answer: str) -> float:
    """1 when the last whole number in the text is the answer. A real run uses a real verifier."""
    numbers = re.findall(r"-?\d+", completion)
    return float(bool(numbers) and int(numbers[-1]) == int(answer))


# --- sampling ---------------------------------------------------------------------------------------------


def uniform(seed: int, index: int, position: int) -> float:
    """The random number of one token of one completion: a function of where it is used, not of a hidden
    state.

    A completion then depends on nothing but its prompt, its seed and the weights, and a resumed run draws the
    same ones.
    """
    digest = hashlib.blake2b(f"{seed}/{index}/{position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def request_seed(*parts: object) -> int:
    """A seed for one prompt of one step."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@torch.no_grad()
def sample(
    model: PreTrainedModel, prompt: list[int], end_ids: set[int], seed: int, index: int, settings: Settings
) -> list[int]:
    """One completion, one token at a time: the first token whose cumulative probability exceeds the
    uniform."""
    ids: list[int] = []
    while len(ids) < settings.max_tokens and not (ids and ids[-1] in end_ids):
        logits = model(torch.tensor([prompt + ids])).logits[0, -1].float()
        cumulative = torch.softmax(logits / settings.temperature, dim=-1).double().cumsum(dim=-1)
        target = uniform(seed, index, len(ids)) * cumulative[-1]
        ids.append(int(torch.searchsorted(cumulative, target, right=True)))
    return ids


# --- the algorithm ----------------------------------------------------------------------------------------


def group_advantages(rewards: Tensor) -> Tensor:
    """[P, G] -> [P, G]: each rollout against its siblings, reward - group mean.

    GRPO as first published also divides by the group's standard deviation, which blows every spread up to the
    same size; without it a group counts by how much it has to say. A group of equal rewards ranks nobody: its
    advantages are exactly 0. This is tested on the rewards, since the mean of twelve 0.9s is not 0.9 in
    floating point.
    """
    spread = rewards.amax(dim=1, keepdim=True) > rewards.amin(dim=1, keepdim=True)  # [P, 1]
    return torch.where(spread, rewards - rewards.mean(dim=1, keepdim=True), 0.0)


def token_logprobs(model: PreTrainedModel, ids: Tensor, attention: Tensor, temperature: float) -> Tensor:
    """[N, T] -> [N, T]: log-prob of each token given those before it; 0 at position 0."""
    logits = (
        model(input_ids=ids, attention_mask=attention).logits[:, :-1].float() / temperature
    )  # [N, T-1, V]
    taken = torch.log_softmax(logits, dim=-1).gather(-1, ids[:, 1:, None])[..., 0]
    return torch.nn.functional.pad(taken, (1, 0))


def policy_loss(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, settings: Settings) -> Tensor:
    """PPO's clipped surrogate with separate bounds, per token: -min(ratio * A, clip(ratio) * A)."""
    ratio = (logprobs - old_logprobs).exp()
    clipped = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    return -torch.minimum(ratio * advantages, clipped * advantages)


def train(settings: Settings) -> Iterator[dict[str, float]]:
    """Yield the metrics of each step."""
    tokenizer = AutoTokenizer.from_pretrained(settings.model)
    model = AutoModelForCausalLM.from_pretrained(settings.model, dtype=torch.float32).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=0.0)
    ends = end_ids(model, tokenizer)
    tasks = read_tasks(settings.data)

    for step in range(1, settings.steps + 1):
        # Rollouts: G completions for each of P prompts.
        prompts, completions, rewards = [], [], torch.zeros(settings.prompts, settings.group)
        for p in range(settings.prompts):
            task = next(tasks)
            prompt = tokenizer.apply_chat_template(
                [{"role": "user", "content": task["prompt"]}], add_generation_prompt=True, return_dict=False
            )
            seed = request_seed(settings.seed, step, p)
            for g in range(settings.group):
                ids = sample(model, prompt, ends, seed, g, settings)
                prompts.append(prompt)
                completions.append(ids)
                rewards[p, g] = verify(tokenizer.decode(ids, skip_special_tokens=True), task["answer"])

        # Advantages; groups without a signal are left out, and without any signal no step is taken:
        # the optimizer's momentum alone would move the weights.
        advantages = group_advantages(rewards)
        live = advantages.ne(0).any(dim=1).repeat_interleave(settings.group).nonzero()[:, 0].tolist()
        metrics = {"step": step, "reward": float(rewards.mean()), "loss": 0.0, "grad_norm": 0.0}
        if live:
            # One padded batch [N, T]; `mask` is True at the tokens the policy generated.
            rows = [prompts[i] + completions[i] for i in live]
            width = max(map(len, rows))
            ids, mask = torch.zeros(len(rows), width, dtype=torch.long), torch.zeros(len(rows), width).bool()
            attention = torch.zeros(len(rows), width, dtype=torch.long)
            for n, (i, row) in enumerate(zip(live, rows, strict=True)):
                ids[n, : len(row)], attention[n, : len(row)] = torch.tensor(row), 1
                mask[n, len(prompts[i]) : len(row)] = True

            # On-policy and used once: the old policy is the current one, so its log-probs are these,
            # detached.
            logprobs = token_logprobs(model, ids, attention, settings.temperature)
            losses = policy_loss(logprobs, logprobs.detach(), advantages.flatten()[live][:, None], settings)
            loss = torch.where(mask, losses, 0.0).sum() / mask.sum()  # all tokens of the batch alike
            loss.backward()
            metrics["grad_norm"] = float(
                torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
            )
            metrics["loss"] = loss.item()
            optimizer.step()
            optimizer.zero_grad()
        yield metrics


def end_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Ids that end a completion: the tokenizer's and those the model's folder names."""
    named = model.generation_config.eos_token_id if model.generation_config is not None else None
    listed = named if isinstance(named, list) else [named]
    return {i for i in (tokenizer.eos_token_id, *listed) if i is not None}


def main() -> None:
    """Read the command line, train, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, field in Settings.__dataclass_fields__.items():
        required = name in ("model", "data")
        parser.add_argument(f"--{name.replace('_', '-')}", type=field.type, required=required,
                            default=None if required else field.default)  # fmt: skip
    for metrics in train(Settings(**vars(parser.parse_args()))):
        print("  ".join(f"{name} {value:.4g}" for name, value in metrics.items()), flush=True)


if __name__ == "__main__":
    main()
