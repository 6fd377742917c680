"""All checks of a prepared run, cheap ones first, and the invariance measurement."""

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import psutil
import torch
from torch import Tensor

from peira.build.run import Prepared
from peira.config.engine import LocalEngineConfig
from peira.engines.local.engine import LocalEngine
from peira.engines.protocol import Engine
from peira.models.memory import Workload, estimate_memory, num_parameters
from peira.trainer.invariance import CutResult, Gradients, measure_cuts, real_batch, same_gradient
from peira.trainer.preflight import (
    Check,
    Outcome,
    check_rendering,
    check_sampling,
    check_sync,
    check_verifiers,
)
from peira.types.rollout import SamplingParams

COMPLETION_TOKENS = 32
"""Of the one completion that is drawn as a check."""
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-8}
NARROW_TOLERANCE = 5e-2
"""bfloat16 and float16 round each product to 3 digits, so orders of summation differ by that."""


async def cheap_checks(prepared: Prepared) -> list[Check]:
    """What can be looked at without weights: prompt, lengths, verifiers, memory, disk."""
    tasks = (*prepared.sets.train.tasks, *prepared.sets.held_out)
    return [
        check_rendering(prepared.tokenizer, tasks[0]),
        check_lengths(prepared),
        *check_held_out(prepared),
        *await check_verifiers(prepared.verifiers.judge, prepared.config.verifiers, tasks),
        check_memory(prepared),
        check_disk(prepared),
    ]


async def examine(prepared: Prepared, *, on_check: Callable[[Check], None]) -> list[Check]:
    """Every check; weights are loaded only when the cheap ones passed. `on_check` hears of each at once."""
    checks = []

    def note(check: Check) -> None:
        checks.append(check)
        on_check(check)

    for check in await cheap_checks(prepared):
        note(check)
    if any(check.outcome is Outcome.FAILED for check in checks):
        note(Check("weights", Outcome.SKIPPED, "not loaded, since a check failed"))
        return checks
    config = prepared.config
    async with prepared.open_parts() as parts:
        synced = await check_sync(parts.engine)
        note(synced)
        if synced.outcome is Outcome.PASSED:
            params = SamplingParams(**config.sampling.model_dump())
            note(
                await check_sampling(
                    parts.engine,
                    prepared.tokenizer,
                    prepared.sets.train.tasks[0],
                    replace(params, max_tokens=min(params.max_tokens, COMPLETION_TOKENS)),
                    seed=config.seed,
                    show=repr,
                )
            )
    return checks


def check_lengths(prepared: Prepared) -> Check:
    """Prompt and completion together within the model's context."""
    report, budget = prepared.sets.report, prepared.config.sampling.max_tokens
    lengths = [found for found in (report.train_lengths, report.held_out_lengths) if found is not None]
    longest = max((found.longest for found in lengths), default=0)
    dropped = sum(len(found.dropped) for found in lengths)
    context = "no limit" if prepared.context_tokens is None else f"{prepared.context_tokens:,} tokens"
    return Check(
        "context",
        Outcome.WARNED if dropped else Outcome.PASSED,
        f"longest prompt {longest} + sampling.max_tokens {budget} = {longest + budget} of {context}"
        + (f"; {dropped} longer prompts were left out" if dropped else ""),
    )


def check_held_out(prepared: Prepared) -> list[Check]:
    """A word when measuring was asked for and there is nothing to measure on."""
    wanted = prepared.config.evaluation
    if prepared.sets.held_out or not (wanted.before or wanted.after or wanted.every_steps):
        return []
    detail = "no task is held out, so nothing will be measured; give more rows, or set data.eval_path"
    return [Check("held-out tasks", Outcome.WARNED, detail)]


def check_disk(prepared: Prepared) -> Check:
    """Room for the checkpoints that will lie there at once, the one being written included."""
    settings = prepared.config.checkpoint
    copies = settings.keep_last + settings.keep_best + 1
    # weights in their dtype, two float32 moments, and float32 masters beside narrower weights
    item = torch.empty((), dtype=prepared.dtype).element_size()
    per_parameter = item + 8 + (4 if item < 4 else 0)
    needed = copies * per_parameter * num_parameters(prepared.model_config)
    place = prepared.run_folder.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    return Check(
        "disk",
        Outcome.PASSED if free > needed else Outcome.FAILED,
        f"{copies} checkpoints need {needed / 1e9:,.2f} GB, {free / 1e9:,.1f} GB are free at {place}"
        + ("" if free > needed else "; make room, set runs_dir, or keep fewer (checkpoint.keep_last)"),
    )


def check_memory(prepared: Prepared) -> Check:
    """The estimate against what is free; fails only when weights, gradient and optimizer alone do not fit."""
    estimate = estimate_memory(
        prepared.model_config, workload(prepared), dtype=prepared.dtype, device=prepared.device
    )
    free = free_bytes(prepared.device)
    certain = sum(estimate.phases["update"].values())
    outcome = Outcome.PASSED if estimate.peak_bytes <= free else Outcome.WARNED
    detail = f"{estimate.lines()[0]}; {free / 1024**3:.1f} GiB are free"
    if certain > free:
        outcome, detail = Outcome.FAILED, f"{detail}; weights, gradient and optimizer alone do not fit"
    return Check("memory", outcome, detail)


def workload(prepared: Prepared) -> Workload:
    """A run's arithmetic, as far as memory is concerned."""
    config, engine, report = prepared.config, prepared.config.engine, prepared.sets.report
    local = engine if isinstance(engine, LocalEngineConfig) else LocalEngineConfig()
    lengths = [found for found in (report.train_lengths, report.held_out_lengths) if found is not None]
    return Workload(
        num_rollouts=config.prompts_per_step * config.group_size,
        group_size=config.group_size,
        max_rows=local.max_rows,
        prompt_tokens=max((found.longest for found in lengths), default=0),
        max_tokens=config.sampling.max_tokens,
        micro_batch_tokens=config.micro_batch_tokens,
        gradient_checkpointing=local.gradient_checkpointing,
        shares_prompts=local.share_prompts,
        num_references=prepared.algorithm.needs_reference + len(config.algorithm.kl.others),
    )


def free_bytes(device: torch.device) -> int:
    """Memory that is free now where the model will be."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariance:
    """What the measurement of law 4 gave."""

    about: str
    """The batch it was measured on."""
    results: list[CutResult]
    tolerance: float
    same: bool


async def measure_invariance(prepared: Prepared) -> Invariance:
    """Loss and gradient of one real batch under several cuts, with prompts shared and not shared."""
    async with prepared.open_parts() as parts:
        batch, natural = await real_batch(prepared.config, parts)
        results, gradient = await measure_cuts(
            parts.engine,
            batch,
            parts.algorithm.token_loss,
            micro_batch_tokens=prepared.config.micro_batch_tokens,
            gradients=_gradients(parts.engine),
        )
    engine = prepared.config.engine
    if isinstance(engine, LocalEngineConfig) and not engine.gradient_checkpointing:
        other = engine.model_copy(update={"share_prompts": not engine.share_prompts})
        changed = replace(prepared, config=prepared.config.model_copy(update={"engine": other}))
        async with changed.open_parts(training=False) as parts:
            more, _ = await measure_cuts(
                parts.engine,
                batch,
                parts.algorithm.token_loss,
                micro_batch_tokens=prepared.config.micro_batch_tokens,
                gradients=_gradients(parts.engine),
                first=gradient,
                against=results[0],
                label="prompts shared, " if other.share_prompts else "prompts not shared, ",
            )
        results += more
    tolerance = TOLERANCE.get(prepared.dtype, NARROW_TOLERANCE)
    signal = (
        "advantages of the verifiers" if natural else "no group had a signal: advantages of +1 and -1 in turn"
    )
    return Invariance(
        about=(
            f"{batch.num_sequences} sequences, {int(batch.lengths.sum()):,} tokens, "
            f"{int(batch.mask.sum()):,} of them trained on; {signal}"
        ),
        results=results,
        tolerance=tolerance,
        same=same_gradient(results, tolerance=tolerance),
    )


def _gradients(engine: Engine) -> Gradients | None:
    if not isinstance(engine, LocalEngine):
        return None

    def read() -> Iterable[tuple[str, Tensor]]:
        return ((name, p.grad) for name, p in engine.model.named_parameters() if p.grad is not None)

    return read
