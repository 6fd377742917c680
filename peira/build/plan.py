"""What a run is going to do, in the numbers people ask for."""

from peira.build.run import Prepared
from peira.config.run import RunConfig
from peira.config.show import differences
from peira.models.memory import num_parameters
from peira.verifiers.function import FunctionVerifier


def plan(prepared: Prepared) -> list[tuple[str, str]]:
    """(label, text) lines for the terminal."""
    config = prepared.config
    parameters = num_parameters(prepared.model_config) / 1e6
    dtype = str(prepared.dtype).removeprefix("torch.")
    model = f"{config.model.name}, {parameters:,.1f} M parameters, {dtype} on {prepared.device}"
    if prepared.context_tokens is not None:
        model += f", context {prepared.context_tokens:,} tokens"
    lines = [
        ("model", model),
        *arithmetic(config, prepared.sets.train.num_tasks, len(prepared.sets.held_out)),
    ]
    lines += [
        (
            "verifier",
            f"{channel.name} x {channel.weight:g}"
            + (" (shadow: logged, not trained on)" * (channel.weight == 0)),
        )
        for channel in prepared.verifiers.channels
    ]
    lines += [
        ("verifier", f"{channel.name}: {channel.verifier.describe()}")
        for channel in prepared.verifiers.channels
        if isinstance(channel.verifier, FunctionVerifier)
    ]
    changed = {
        k: v for k, v in differences(config).items() if k.startswith("algorithm.") and k != "algorithm.name"
    }
    lines.append(
        (
            "algorithm",
            " ".join(
                [config.algorithm.name, *(f"{k.removeprefix('algorithm.')}={v}" for k, v in changed.items())]
            ),
        )
    )
    lines += [("reading", line) for line in prepared.sets.report.lines()]
    lines += [("tokenizer", line) for line in prepared.tokenizer.warnings]
    first = prepared.sets.train.tasks[0]
    lines += [("example", line) for line in prepared.tokenizer.describe(first.prompt).splitlines()]
    lines.append(("example", f"answer    {first.answer!r}"))
    lines.append(("folder", str(prepared.run_folder)))
    return lines


def arithmetic(config: RunConfig, num_tasks: int, num_held_out: int) -> list[tuple[str, str]]:
    """The batch written out: prompts x group = rollouts, tokens, optimizer steps, passes over the data."""
    rollouts = config.prompts_per_step * config.group_size
    tokens = rollouts * config.sampling.max_tokens
    per_step = config.updates_per_step * config.epochs_per_step
    draws = config.steps * config.prompts_per_step
    more = (
        f"; dynamic sampling draws up to {config.algorithm.max_refills} times more"
        if config.algorithm.dynamic_sampling
        else ""
    )
    return [
        (
            "batch",
            f"{config.prompts_per_step} prompts x {config.group_size} rollouts = {rollouts} rollouts per "
            f"step, at most {rollouts} x {config.sampling.max_tokens} = {tokens:,} new tokens{more}",
        ),
        (
            "updates",
            f"{config.updates_per_step} x {config.epochs_per_step} pass{'es' * (config.epochs_per_step > 1)} "
            f"= {per_step} optimizer step{'s' * (per_step > 1)} per step, {config.steps} steps = "
            f"{config.steps * per_step:,} in all",
        ),
        (
            "data",
            f"{config.steps} steps x {config.prompts_per_step} prompts = {draws:,} draws = "
            f"{draws / num_tasks:.2f} passes over {num_tasks:,} tasks; {num_held_out:,} held out",
        ),
    ]
