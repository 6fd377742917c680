"""TRL's GRPOTrainer and peira, side by side: same model, prompts, group size, lengths, learning rate,
precision.

    python benchmarks/vs_trl.py                 # SmolLM2-135M-Instruct, float32, 4 prompts x 8 rollouts x 32
    tokens python benchmarks/vs_trl.py --model tiny-arith --steps 2

Each side runs in processes of its own, in turns, so that a machine that gets slower or faster meets both; a
process's first step is warm-up and not counted. Prompts ask for long answers and the reward is a hash of the
text, so that completions have the full length and no group is ever collapsed: both sides generate and train
on the same number of tokens. TRL runs with what a user on this machine would give it: transformers
generation, KV cache, no KL term, and without gradient checkpointing (its default), which would only make it
slower; `--trl-checkpointing` turns it on.
"""

import argparse
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

THINGS = ("lighthouse", "violin", "glacier", "market", "comet", "beehive", "canal", "orchard")
PROMPT = "Tell me a very long story about a {}, with many details."


def differs(completion: str) -> float:
    """A reward that tells any two texts apart: a hash of the text, uniform in [0, 1)."""
    return int.from_bytes(hashlib.blake2b(completion.encode(), digest_size=6).digest(), "big") / 2**48


def measure_peira(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One process of peira."""
    import asyncio

    from peira.build.run import prepare, run_training
    from peira.config.load import load_config

    steps: list[Mapping[str, float | int]] = []

    class Keep:
        def on_event(self, text: str) -> None: ...
        def on_stage(self, stage: str, done: int, planned: int) -> None: ...
        def on_eval(self, record: Any) -> None: ...
        def on_step(self, step: int, metrics: Mapping[str, float | int]) -> None:
            steps.append(metrics)

    data = folder / "prompts.jsonl"
    data.write_text(
        "".join(json.dumps({"prompt": PROMPT.format(thing), "answer": ""}) + "\n" for thing in THINGS)
    )
    recipe = {
        "name": "peira",
        "runs_dir": str(folder),
        "steps": options.steps + 1,
        "prompts_per_step": options.prompts,
        "group_size": options.group,
        "model": options.model,
        "data": {"path": str(data), "held_out_fraction": 0},
        "verifiers": [{"kind": "function", "ref": f"{__file__}:reward_for_peira"}],
        "sampling": {"max_tokens": options.tokens},
        "algorithm": "grpo",
        "optimizer": {"lr": options.lr},
        "evaluation": {"before": False, "after": False},
        "checkpoint": {"every_steps": 0},
        "logging": {"tensorboard": False},
    }
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(recipe))
    with prepare(load_config(path, [])) as prepared:
        asyncio.run(run_training(prepared, Keep(), resume=False))
    tokens = [m["rollout/tokens_mean"] * options.prompts * options.group for m in steps]
    return {
        "step_s": [m["time/step_s"] for m in steps],
        "generate_s": [m["time/sample_s"] for m in steps],
        "train_s": [m["time/learn_s"] for m in steps],
        "tokens": tokens,
        "reward": [m["reward/mean"] for m in steps],
        "collapsed": [m["advantage/collapsed_fraction"] for m in steps],
        "mismatch": [m["mismatch/logprob_gap_max"] for m in steps],
    }


def reward_for_peira(completion: str) -> float:
    """The reward in peira's native form."""
    return differs(completion)


def measure_trl(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One process of TRL."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from peira.models.catalogue import resolve

    model = str(resolve(options.model))
    seen: dict[str, list[float]] = {"generate_s": [], "step_s": [], "tokens": [], "reward": []}

    class Timed(GRPOTrainer):
        def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            result = super()._generate_single_turn(*args, **kwargs)
            seen["generate_s"].append(time.perf_counter() - started)
            return result

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            self.started = time.perf_counter()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            seen["step_s"].append(time.perf_counter() - self.started)

        def on_log(self, *args: Any, logs: dict[str, float], **kwargs: Any) -> None:
            if "reward" in logs:
                seen["reward"].append(logs["reward"])
                rows = options.prompts * options.group
                seen["tokens"].append(logs["completions/mean_length"] * rows)

    def reward(completions: list[Any], **_: Any) -> list[float]:
        return [differs(c[0]["content"] if isinstance(c, list) else c) for c in completions]

    rows = [{"prompt": [{"role": "user", "content": PROMPT.format(thing)}]} for thing in THINGS]
    settings = GRPOConfig(
        output_dir=str(folder / "trl"),
        per_device_train_batch_size=options.prompts * options.group,
        num_generations=options.group,
        max_completion_length=options.tokens,
        learning_rate=options.lr,
        lr_scheduler_type="constant",
        max_steps=options.steps + 1,
        loss_type="grpo",
        beta=0.0,
        temperature=1.0,
        gradient_checkpointing=options.trl_checkpointing,
        bf16=False,
        use_cpu=not torch.cuda.is_available(),
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = Timed(
        model=AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(model),
        args=settings,
        train_dataset=Dataset.from_list(rows),
        reward_funcs=reward,
        callbacks=[Clock()],
    )
    trainer.train()
    train = [whole - generate for whole, generate in zip(seen["step_s"], seen["generate_s"], strict=True)]
    return {**seen, "train_s": train}


SIDES: dict[str, Callable[[argparse.Namespace, Path], dict[str, Any]]] = {
    "trl": measure_trl,
    "peira": measure_peira,
}


def one_process(side: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run one side in a process of its own and read what it measured."""
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in vars(options).items()
                 if name not in ("side", "json", "trl_checkpointing")]  # fmt: skip
    arguments += ["--trl-checkpointing"] * options.trl_checkpointing
    done = subprocess.run(
        [sys.executable, __file__, f"--side={side}", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{side} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def spread(values: list[float]) -> str:
    """Median and range."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    """Run both sides in turns and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-5)
    parser.add_argument("--steps", type=int, default=3, help="counted steps of each process")
    parser.add_argument("--rounds", type=int, default=2, help="processes of each side")
    parser.add_argument("--trl-checkpointing", action="store_true")
    parser.add_argument("--json", type=Path, help="write every measurement here")
    parser.add_argument("--side", choices=sorted(SIDES), help=argparse.SUPPRESS)
    options = parser.parse_args()

    if options.side:
        with tempfile.TemporaryDirectory() as folder:
            result = SIDES[options.side](options, Path(folder))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({**result, "peak_bytes": peak}))
        return

    found: dict[str, dict[str, list[float]]] = {side: {} for side in SIDES}
    for number in range(options.rounds):
        for side in SIDES:
            print(f"round {number + 1} of {options.rounds}: {side} ...", flush=True)
            result = one_process(side, options)
            for name, values in result.items():
                counted = [values] if name == "peak_bytes" else values[1:]
                found[side].setdefault(name, []).extend(counted)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))

    def median(side: str, name: str) -> float:
        return statistics.median(found[side][name])

    def rate(side: str, name: str) -> float:
        return statistics.median(t / s for t, s in zip(found[side]["tokens"], found[side][name], strict=True))

    size = f"{options.prompts} prompts x {options.group} rollouts x {options.tokens} tokens"
    counted = len(found["trl"]["step_s"])
    print(f"\n{options.model}: {size}, {counted} counted steps of each side, medians (range)\n")
    print("| | TRL | peira | ratio |\n|---|---|---|---|")
    stages = (("step, s", "step_s"), ("generation, s", "generate_s"), ("the rest, s", "train_s"))
    for label, name in stages:
        theirs, ours = spread(found["trl"][name]), spread(found["peira"][name])
        print(f"| {label} | {theirs} | {ours} | {median('trl', name) / median('peira', name):.2f} |")
    for label, name in (("generated tokens/s", "generate_s"), ("trained tokens/s", "train_s")):
        fast, slow = rate("peira", name), rate("trl", name)
        print(f"| {label} | {slow:.0f} | {fast:.0f} | {fast / slow:.2f} |")
    peak = {side: max(found[side]["peak_bytes"]) / 2**30 for side in SIDES}
    print(
        f"| peak memory, GiB | {peak['trl']:.2f} | {peak['peira']:.2f} | {peak['trl'] / peak['peira']:.2f} |"
    )
    print(f"| tokens per step | {median('trl', 'tokens'):.0f} | {median('peira', 'tokens'):.0f} | |")
    print(f"| mean reward | {median('trl', 'reward'):.3f} | {median('peira', 'reward'):.3f} | |")
    print(f"| sampler to learner gap, nats | not reported | {max(found['peira']['mismatch']):.1e} | |")


if __name__ == "__main__":
    main()
