"""One learner update, ours against plain full sequences: same model, tokens, loss and weights.

    python benchmarks/learn.py --model smollm2-135m-instruct          the numbers in docs/benchmarks.md
    python benchmarks/learn.py --quick                                a small random model, seconds

plain: `model(ids).logits` over prompts and completions, log_softmax over [N, T, V], gather, backward.
peira: prompts once per group, the head at trained tokens only, in chunks.

Rounds alternate, so that whatever else the machine does falls on both; every round has a process of its
own, so that peak memory is that of one way, beyond the loaded model. Time is wall-clock and CPU time of the
second update. Ratios are of medians.
"""

import argparse
import asyncio
import json
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from peira.algorithms.batch import TrainBatch
from peira.engines.local.engine import LocalEngine
from peira.models.hf import load_model


def model_for(name: str | None) -> PreTrainedModel:
    if name is not None:
        return load_model(name, dtype="float32")
    torch.manual_seed(0)
    shape = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "vocab_size": 8192}
    return LlamaForCausalLM(LlamaConfig(**shape, num_attention_heads=8, num_key_value_heads=2))


def batch_for(
    model: PreTrainedModel, prompts: int, group: int, prompt_tokens: int, new_tokens: int
) -> TrainBatch:
    """Random tokens; prompts and completions of unequal lengths."""
    generator = torch.Generator().manual_seed(0)
    rows = prompts * group
    groups = torch.arange(prompts).repeat_interleave(group)
    prompt_lengths = prompt_tokens - groups % 4
    lengths = prompt_lengths + new_tokens - torch.arange(rows) % (new_tokens // 4 + 1)
    shape = (rows, int(lengths.max()))
    token_ids = torch.randint(3, model.config.vocab_size, shape, generator=generator)
    columns = torch.arange(shape[1])
    first = token_ids[::group].repeat_interleave(group, 0)
    token_ids = torch.where(columns < prompt_lengths[:, None], first, token_ids)
    mask = (columns >= prompt_lengths[:, None]) & (columns < lengths[:, None])
    zeros = torch.zeros(shape)
    return TrainBatch(
        token_ids=token_ids,
        lengths=lengths,
        prompt_lengths=prompt_lengths,
        group=groups,
        mask=mask,
        advantages=torch.randn(shape, generator=generator),
        weights=mask / mask.sum(),
        sampling_logprobs=zeros,
        old_logprobs=zeros,
        policy_version=torch.zeros(rows, dtype=torch.long),
        temperature=1.0,
    )


def policy_gradient(logprobs: Tensor, batch: TrainBatch) -> Tensor:
    return torch.where(batch.mask, -batch.advantages * logprobs, 0.0)


def plain(model: PreTrainedModel, batch: TrainBatch) -> None:
    attention = torch.arange(batch.token_ids.shape[1]) < batch.lengths[:, None]
    logits = model(input_ids=batch.token_ids, attention_mask=attention, use_cache=False).logits[:, :-1]
    logprobs = torch.log_softmax(logits.float(), dim=-1).gather(2, batch.token_ids[:, 1:, None])[..., 0]
    losses = policy_gradient(torch.nn.functional.pad(logprobs, (1, 0)), batch)
    (losses * batch.weights).sum().backward()


def timed(work: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def one(way: str, arguments: argparse.Namespace, rounds: int) -> dict[str, list[float]]:
    model = model_for(arguments.model).eval()
    batch = batch_for(
        model, arguments.prompts, arguments.group, arguments.prompt_tokens, arguments.new_tokens
    )
    engine = LocalEngine(model, end_ids=())
    loaded = peak_bytes()
    walls: list[float] = []
    cpus: list[float] = []
    for _ in range(rounds):
        if way == "plain":
            wall, cpu = timed(lambda: plain(model, batch))
        else:
            wall, cpu = timed(lambda: asyncio.run(engine.forward_backward(batch, policy_gradient)))
        walls.append(wall)
        cpus.append(cpu)
        model.zero_grad()
    return {"wall_s": walls, "cpu_s": cpus, "peak_bytes": [peak_bytes() - loaded]}


def _child(way: str, arguments: argparse.Namespace, rounds: int, answer: "multiprocessing.Queue") -> None:  # type: ignore[type-arg]
    answer.put(one(way, arguments, rounds))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", help="a folder, hub id or catalogue name; a small random model when left out"
    )
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=40)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two rounds on a small random model")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.model, arguments.rounds = None, 2

    context = multiprocessing.get_context("spawn")
    found: dict[str, dict[str, list[float]]] = {
        w: {"wall_s": [], "cpu_s": [], "peak_bytes": []} for w in WAYS
    }
    for round_number in range(arguments.rounds):
        for way in WAYS:
            answer: multiprocessing.Queue[dict[str, list[float]]] = context.Queue()
            child = context.Process(target=_child, args=(way, arguments, 2, answer))
            child.start()
            numbers = answer.get()
            child.join()
            # the first pass of a process warms it up
            for key in ("wall_s", "cpu_s"):
                found[way][key].append(numbers[key][-1])
            found[way]["peak_bytes"] += numbers["peak_bytes"]
            print(f"round {round_number + 1} {way}: {numbers['wall_s'][-1]:.2f} s", flush=True)

    print(f"\n{'':8}{'wall s':>10}{'CPU s':>10}{'peak MB':>10}   median of {arguments.rounds}")
    for way in WAYS:
        wall, cpu, peak = (statistics.median(found[way][k]) for k in ("wall_s", "cpu_s", "peak_bytes"))
        print(f"{way:8}{wall:10.2f}{cpu:10.2f}{peak / 1e6:10.0f}")
    ratios = [
        statistics.median(found["plain"][k]) / statistics.median(found["peira"][k])
        for k in ("wall_s", "cpu_s", "peak_bytes")
    ]
    print(f"{'ratio':8}{ratios[0]:10.2f}{ratios[1]:10.2f}{ratios[2]:10.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


WAYS = ("plain", "peira")

if __name__ == "__main__":
    main()
