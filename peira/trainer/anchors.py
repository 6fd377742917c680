"""Anchors (DPH-RL): right answers of the untrained model, on which the policy is held close to it.

tasks --sample k each--> judge --keep the right ones--> learner's own log-probs --> file in the run folder
                                                               once, before the first step
"""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from peira.algorithms.batch import TrainBatch
from peira.algorithms.policy_loss import token_weights
from peira.config.algorithm import AnchorsConfig
from peira.config.run import RunConfig
from peira.errors import CheckpointError, ConfigError
from peira.pipeline.collect import collect_groups
from peira.pipeline.pack import UpdateRows, pack
from peira.pipeline.score import score_groups
from peira.trainer.learn import score_batch
from peira.trainer.step import Parts
from peira.types.rollout import SamplingParams

_COLUMNS = ("token_ids", "lengths", "prompt_lengths", "group", "mask", "reference_logprobs")


async def sample_anchors(
    config: AnchorsConfig,
    run: RunConfig,
    parts: Parts,
    path: Path,
    *,
    beat: Callable[[str], None],
    check: Callable[[], None],
) -> TrainBatch:
    """Draw, judge, score and write the anchors; the sampler must hold the learner's weights, and those be the
    model's as it came.

    Log-probs come from the learner's forward pass, as those they will be compared with do: at the first step
    the divergence is exactly 0, whatever the sampler rounds.

    Raises:
        ConfigError: no sample was good enough.
    """
    among = parts.tasks.tasks
    chosen = random.Random(f"anchors {run.seed}").sample(among, min(config.tasks, len(among)))

    def progress(finished: int, planned: int) -> None:
        beat("sample")
        check()

    groups = await collect_groups(
        parts.engine,
        parts.tokenizer,
        chosen,
        group_size=config.samples,
        params=SamplingParams(**run.sampling.model_dump()),
        seed=run.seed,
        label="anchors",
        on_rollout=progress,
    )
    scored = await score_groups(groups, parts.judge, combine=parts.combine, truncated=run.judging.truncated)
    beat("score")
    rows: dict[tuple[int, ...], tuple[int, int]] = {}
    for p, group in enumerate(scored):
        for g, member in enumerate(group.rollouts):
            if (
                member.outcome is not None
                and member.outcome >= config.min_outcome
                and member.rollout.num_tokens
            ):
                rows.setdefault(member.rollout.token_ids, (p, g))
    if not rows:
        raise ConfigError(
            f"algorithm.anchors.min_outcome = {config.min_outcome}: expected an outcome that some of the "
            f"{len(chosen)} x {config.samples} samples reach; lower it, or raise algorithm.anchors.samples"
        )
    batch = pack(
        scored,
        UpdateRows(rows=tuple(rows.values()), dead_sequences=0, dead_tokens=0),
        torch.zeros(len(scored), config.samples),
        weights=_mean_over_tokens,
        pad_id=parts.tokenizer.pad_id,
        temperature=run.sampling.temperature,
    )
    logprobs = await score_batch(parts.engine, batch, run.micro_batch_tokens)
    columns = {name: getattr(batch, name) for name in _COLUMNS[:-1]} | {"reference_logprobs": logprobs}
    part = path.with_suffix(".part")
    save_file({name: column.contiguous() for name, column in columns.items()}, part)
    part.replace(path)
    return load_anchors(path, temperature=run.sampling.temperature)


def load_anchors(path: Path, *, temperature: float) -> TrainBatch:
    """The anchors that a run was begun with.

    Raises:
        CheckpointError: the file is gone or broken; without it the run cannot go on as it began.
    """
    try:
        columns = load_file(path)
        mask = columns["mask"]
        return TrainBatch(
            **{name: columns[name] for name in _COLUMNS},
            advantages=torch.zeros(mask.shape),
            weights=_mean_over_tokens(mask),
            sampling_logprobs=columns["reference_logprobs"],
            old_logprobs=columns["reference_logprobs"],
            policy_version=torch.zeros(len(mask), dtype=torch.int64),
            temperature=temperature,
        )
    except Exception as error:  # whatever the file's format raises
        raise CheckpointError(
            f"{path}: {error}: expected the anchors that this run was begun with; put the file back, or "
            "start a new run"
        ) from error


def anchors_of(step: int, anchors: TrainBatch, *, per_step: int) -> TrainBatch:
    """The anchors of one step: the next so many, round and round; weights average over their tokens."""
    count = min(per_step, anchors.num_sequences)
    first = (step - 1) * count
    rows = sorted((first + i) % anchors.num_sequences for i in range(count))
    batch = anchors.select(torch.tensor(rows))
    return replace(batch, weights=_mean_over_tokens(batch.mask))


def _mean_over_tokens(mask: torch.Tensor, *, dead_sequences: int = 0, dead_tokens: int = 0) -> torch.Tensor:
    return token_weights(mask, average="token_mean", max_tokens=1, count_dead=False)
