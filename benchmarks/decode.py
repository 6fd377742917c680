"""Tokens per second of sampling, ours against `model.generate`: same model, prompts, lengths, process.

    python benchmarks/decode.py --model smollm2-135m-instruct         the numbers in docs/benchmarks.md
    python benchmarks/decode.py --quick                               a small random model, seconds

generate          transformers, growing cache, multinomial sampling
generate static   transformers, preallocated cache
peira             `LocalEngine.sample`

Every way draws the same number of tokens from the same prompts at temperature 1, and none may stop early.
Rounds alternate, so that whatever else the machine does falls on all; ratios are of medians. CPU time is
that of the process: on a busy machine it says more than the clock.
"""

import argparse
import asyncio
import json
import statistics
import time
from pathlib import Path

import torch
from learn import model_for
from transformers import PreTrainedModel

from peira.config.engine import LocalEngineConfig
from peira.engines.local.engine import LocalEngine
from peira.types.rollout import SampleRequest, SamplingParams

WAYS = ("generate", "generate static", "peira")


def prompts_for(model: PreTrainedModel, count: int, tokens: int) -> list[tuple[int, ...]]:
    """Random ids, each prompt one token longer than the one before, up to eight."""
    generator = torch.Generator().manual_seed(0)
    size = model.config.vocab_size
    return [
        tuple(torch.randint(3, size, (tokens + i % 8,), generator=generator).tolist()) for i in range(count)
    ]


def generate(
    model: PreTrainedModel, prompts: list[tuple[int, ...]], group: int, new_tokens: int, *, static: bool
) -> int:
    rows = [prompt for prompt in prompts for _ in range(group)]
    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(row)) + list(row) for row in rows], device=model.device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=model.device)
    with torch.inference_mode():
        found = model.generate(
            ids,
            attention_mask=mask,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            min_new_tokens=new_tokens,
            max_new_tokens=new_tokens,
            pad_token_id=0,
            disable_compile=True,
            cache_implementation="static" if static else None,
        )
    return int(found.shape[0] * (found.shape[1] - width))


async def sample(engine: LocalEngine, prompts: list[tuple[int, ...]], group: int, new_tokens: int) -> int:
    params = SamplingParams(max_tokens=new_tokens)
    requests = [
        SampleRequest(id=str(i), prompt_ids=prompt, num_samples=group, params=params, seed=i)
        for i, prompt in enumerate(prompts)
    ]
    return sum([len(completion.token_ids) async for completion in engine.sample(requests)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", help="a folder, hub id or catalogue name; a small random model when left out"
    )
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=40)
    parser.add_argument("--new-tokens", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two rounds on a small random model")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.model, arguments.rounds = None, 2

    model = model_for(arguments.model).eval()
    prompts = prompts_for(model, arguments.prompts, arguments.prompt_tokens)
    size = (prompts, arguments.group, arguments.new_tokens)
    found: dict[str, dict[str, list[float]]] = {way: {"wall": [], "cpu": []} for way in WAYS}
    for round_number in range(arguments.rounds + 1):  # the first round warms up
        for way in WAYS:
            # the engine changes how the model computes attention, so generate gets its own back
            model.set_attn_implementation("sdpa")
            wall, cpu = time.perf_counter(), time.process_time()
            if way == "peira":
                config = LocalEngineConfig(max_rows=len(prompts) * arguments.group)
                tokens = asyncio.run(sample(LocalEngine(model, end_ids=(), config=config), *size))
            else:
                tokens = generate(model, *size, static=way == "generate static")
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            if round_number > 0:
                found[way]["wall"].append(tokens / wall)
                found[way]["cpu"].append(tokens / cpu)
                print(f"round {round_number} {way}: {tokens} tokens, {tokens / wall:.0f}/s", flush=True)

    rows = len(prompts) * arguments.group
    print(
        f"\n{rows} rows, {arguments.new_tokens} new tokens, {torch.get_num_threads()} threads, {model.dtype}"
    )
    print(f"{'':18}{'tokens/s':>10}{'low':>7}{'high':>7}{'tokens/CPU s':>14}{'ratio':>8}{'CPU ratio':>11}")
    base = {kind: statistics.median(found["generate"][kind]) for kind in ("wall", "cpu")}
    for way in WAYS:
        wall, cpu = statistics.median(found[way]["wall"]), statistics.median(found[way]["cpu"])
        low, high = min(found[way]["wall"]), max(found[way]["wall"])
        print(
            f"{way:18}{wall:10.0f}{low:7.0f}{high:7.0f}{cpu:14.0f}"
            f"{wall / base['wall']:8.2f}{cpu / base['cpu']:11.2f}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
