"""One turn of the loop: prompt -> rollout -> reward -> advantage -> loss -> update.

Every stage returns a new record and none writes into an earlier one, so each can be printed, saved or
replayed alone. Sampling ahead of learning has no place here: this is the synchronous, on-policy step.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float

from peira.algorithms.batch import TrainBatch
from peira.algorithms.diagnostics import KINDS, collapse_kinds
from peira.algorithms.family import Algorithm, StepContext
from peira.algorithms.noise import correction_audit
from peira.algorithms.ratio import too_stale
from peira.algorithms.schedule import learning_rate
from peira.algorithms.shaping import overlong_penalty
from peira.config.run import RunConfig
from peira.data.sampler import TaskSampler
from peira.engines.protocol import Engine
from peira.pipeline.collect import collect_groups
from peira.pipeline.pack import (
    behaviour_table,
    channel_table,
    pack,
    reward_table,
    split_updates,
    trainable_rows,
    version_table,
)
from peira.pipeline.probe import GapAudit
from peira.pipeline.refill import draw_with_signal
from peira.pipeline.score import Combine, Judge, Shape, score_groups
from peira.pipeline.steps import step_table
from peira.runs.ledger import DropReason
from peira.trainer.account import fates
from peira.trainer.learn import Update, learn
from peira.trainer.noise import watch_noise
from peira.types.rollout import Rollout, SamplingParams
from peira.types.scored import ScoredGroup
from peira.types.task import Task
from peira.types.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a run is made of; `build` makes it from a configuration."""

    engine: Engine
    reference: Engine | None
    """Frozen; asked for log-probs only. None when the algorithm needs no reference."""
    other_references: tuple[Engine, ...] = ()
    """Further frozen ones, in the order of `algorithm.kl.others`."""
    tokenizer: Tokenizer
    tasks: TaskSampler
    held_out: Sequence[Task]
    judge: Judge
    combine: Combine
    channels: tuple[str, ...]
    """Names of the verifiers, in the order of the configuration."""
    algorithm: Algorithm
    second_opinion: Judge | None = None
    """Hears appeals against rejections; None when the algorithm asks for none."""
    audit: GapAudit | None = None
    """Visible against held-out tests, for evaluation only; None when no verifier has held-out tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """Everything a step did, for metrics, rollout files and the ledger."""

    groups: tuple[ScoredGroup, ...]
    """All that were generated, refills included."""
    outcomes: torch.Tensor
    rewards: torch.Tensor
    judged: torch.Tensor
    advantages: torch.Tensor
    """[P, G] each; NaN rewards where `judged` is False. Advantages that differ by token as their mean."""
    kinds: torch.Tensor
    """[P]: index into `algorithms.diagnostics.KINDS`."""
    truncated: torch.Tensor
    duplicate: torch.Tensor
    stale: torch.Tensor
    fates: list[list[DropReason | None]]
    updates: list[Update]
    refills: int
    remembered: dict[str, float]
    """What the algorithm wants to find at the next step."""
    observations: dict[str, float]
    """What was learnt of the verifiers' errors, by metric."""
    seconds: dict[str, float]
    """Wall clock by stage."""


async def take_step(
    step: int,
    run: RunConfig,
    parts: Parts,
    remembered: dict[str, float],
    *,
    anchors: TrainBatch | None = None,
    beat: Callable[[str], None],
    check: Callable[[], None],
) -> StepResult:
    """Draw, judge, and learn from one step's tasks. The sampler must hold the learner's weights.

    Without a signal in any group no optimizer step is taken: momentum alone would move the weights.

    Args:
        step: number of this step, from 1; with the run's seed it fixes every completion.
        remembered: what the algorithm left at the step before.
        anchors: those of this step, for an algorithm that has them.
        beat: told whenever something moved, with the stage's name.
        check: called where the step can still be abandoned without a trace; raises to abandon it.
    """
    clock = Clock()
    params = SamplingParams(**run.sampling.model_dump())
    shape = overlong_shape(run)

    def progress(finished: int, planned: int) -> None:
        beat("sample")
        check()

    async def score(tasks: Sequence[Task], first: int) -> list[ScoredGroup]:
        with clock.stage("sample"):
            groups = await collect_groups(
                parts.engine,
                parts.tokenizer,
                tasks,
                group_size=run.group_size,
                params=params,
                seed=run.seed,
                label=str(step),
                first_draw=first,
                on_rollout=progress,
            )
        with clock.stage("score"):
            scored = await score_groups(
                groups, parts.judge, combine=parts.combine, truncated=run.judging.truncated, shape=shape
            )
        beat("score")
        check()
        return scored

    drawn = await draw_with_signal(
        parts.tasks.draw,
        score,
        wanted=run.prompts_per_step,
        max_refills=run.algorithm.max_refills if run.algorithm.dynamic_sampling else 0,
        has_signal=has_signal,
    )

    scored = drawn.groups
    for group in scored:
        outcomes_seen = [r.outcome for r in group.rollouts if r.outcome is not None]
        parts.tasks.observe(group.task, passed=sum(o > 0.5 for o in outcomes_seen), judged=len(outcomes_seen))
    with clock.stage("score"):
        noise = await watch_noise(
            scored, run.algorithm.noise, parts.second_opinion, remembered, seed=run.seed
        )
        remembered = noise.remembered
        check()

    with clock.stage("pack"):
        rewards, judged = reward_table(scored)  # [P, G], [P, G]
        outcomes, _ = reward_table(scored, shaped=False)
        truncated, duplicate = behaviour_table(scored)
        context = StepContext(
            outcomes=outcomes,
            channels=channel_table(scored, parts.channels),
            num_tokens=torch.tensor([[r.rollout.num_tokens for r in g.rollouts] for g in scored]),
            false_positive_rates=noise.false_positive_rates,
            false_negative_rates=noise.false_negative_rates,
            state=remembered,
        )
        if parts.algorithm.observe is not None:
            remembered = parts.algorithm.observe(rewards, judged, context=context)
        advantages = parts.algorithm.advantages(rewards, judged, context=context)  # [P, G]
        observations = dict(noise.metrics)
        if parts.algorithm.uncorrected is not None:
            plain = parts.algorithm.uncorrected(rewards, judged, context=context)
            observations |= correction_audit(advantages, plain, judged)
        kinds = collapse_kinds(outcomes, judged, truncated=truncated, duplicate=duplicate)
        credit = step_credit(scored, run, parts)
        signal = advantages
        if credit is not None:
            signal = advantages.abs() + credit.abs().amax(dim=2)
        stale = stale_rollouts(scored, run.algorithm.mismatch.max_lag, parts.engine.policy_version)
        rows = trainable_rows(scored, signal, judged, stale)
        batches = [
            pack(
                scored,
                update,
                advantages,
                credit=credit,
                weights=parts.algorithm.weights,
                pad_id=parts.tokenizer.pad_id,
                temperature=run.sampling.temperature,
            )
            for update in split_updates(scored, rows, judged, num_updates=run.updates_per_step)
        ]

    with clock.stage("learn"):
        updates = await learn(
            parts.engine,
            parts.reference,
            batches,
            parts.algorithm,
            others=parts.other_references,
            anchors=anchors,
            epochs=run.epochs_per_step,
            micro_batch_tokens=run.micro_batch_tokens,
            rates=learning_rates(run, step, len(batches) * run.epochs_per_step),
            on_progress=lambda: beat("learn"),
        )
    if credit is not None:
        lengths = torch.tensor([[r.rollout.num_tokens for r in g.rollouts] for g in scored])
        advantages = advantages + credit.sum(dim=2) / lengths.clamp(min=1)
    return StepResult(
        groups=scored,
        outcomes=outcomes,
        rewards=rewards,
        judged=judged,
        advantages=advantages,
        kinds=kinds,
        truncated=truncated,
        duplicate=duplicate,
        stale=stale,
        fates=fates(scored, rows, kinds, stale),
        updates=updates,
        refills=drawn.refills,
        remembered=remembered,
        observations=observations,
        seconds=clock.seconds,
    )


def has_signal(group: ScoredGroup) -> bool:
    """Whether the verifier's outcomes tell the group's members apart."""
    outcomes = {rollout.outcome for rollout in group.rollouts if rollout.outcome is not None}
    return len(outcomes) > 1


def step_credit(
    scored: Sequence[ScoredGroup], run: RunConfig, parts: Parts
) -> Float[torch.Tensor, "P G T"] | None:
    """What scores of reasoning steps add to the advantages of tokens; None where they are not trained on."""
    process = run.algorithm.process
    if process is None or parts.algorithm.credit is None:
        return None
    table = step_table(scored, parts.tokenizer, channel=process.verifier, separator=process.separator)
    credit = parts.algorithm.credit(table.rewards, table.present, table.ends, table.group, table.tokens)
    return credit.reshape(len(scored), -1, credit.shape[1])


def stale_rollouts(
    scored: Sequence[ScoredGroup], max_lag: int | None, current_version: int
) -> Bool[torch.Tensor, "P G"]:
    """Which rollouts were drawn by weights too old to learn from; none where no limit is set."""
    versions = version_table(scored)
    if max_lag is None:
        return torch.zeros_like(versions, dtype=torch.bool)
    return too_stale(versions, current_version=current_version, max_lag=max_lag)


def overlong_shape(run: RunConfig) -> Shape | None:
    """The overlong penalty as something added to rewards; None when it is off."""
    settings = run.algorithm
    if settings.overlong_buffer_tokens == 0:
        return None

    def shape(rollout: Rollout) -> dict[str, float]:
        amount = overlong_penalty(
            rollout.num_tokens,
            max_tokens=run.sampling.max_tokens,
            buffer_tokens=settings.overlong_buffer_tokens,
            penalty=settings.overlong_penalty,
        )
        return {"overlong": amount}

    return shape


def learning_rates(run: RunConfig, step: int, count: int) -> list[float]:
    """Rates of this step's optimizer steps. It follows the plan, whether or not a step had a signal."""
    planned = run.updates_per_step * run.epochs_per_step
    return [
        learning_rate(
            (step - 1) * planned + i,
            peak=run.optimizer.lr,
            warmup_steps=run.optimizer.warmup_steps,
            total_steps=run.steps * planned,
            schedule=run.optimizer.schedule,
            min_fraction=run.optimizer.min_lr_fraction,
        )
        for i in range(count)
    ]


def collapse_shares(kinds: torch.Tensor) -> dict[str, float]:
    """Share of groups by kind of collapse."""
    return {kind: float((kinds == i).double().mean()) for i, kind in enumerate(KINDS)}


class Clock:
    """Adds up wall-clock seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time what happens inside."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
