"""The loop everything exists for.

    restore -> [ sync, prove -> take a step -> record -> measure -> save -> stop? ] x steps -> measure -> save

All it waits for is an engine's verb or the verifiers' pool; the watchdog times those waits. Ctrl-C sets a
flag that is looked at between completions and between stages: a step that has not learnt yet is abandoned
without a trace (a resumed run draws it again, completion for completion), one that is learning is finished.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from peira.algorithms.batch import TrainBatch
from peira.config.run import RunConfig
from peira.errors import ExitCode, StopRun
from peira.runs.evaluation import EvalRecord
from peira.runs.ledger import LedgerEntry
from peira.runs.reader import RunReader
from peira.runs.writer import RunWriter
from peira.trainer.anchors import anchors_of, load_anchors, sample_anchors
from peira.trainer.checkpoint import (
    discard_after,
    latest_checkpoint,
    prune_checkpoints,
    save_checkpoint,
)
from peira.trainer.evaluate import evaluate
from peira.trainer.report import eval_metrics, step_metrics
from peira.trainer.sinks import MetricSink
from peira.trainer.state import TrainerState, trace_fingerprint
from peira.trainer.step import Parts, StepResult, take_step
from peira.trainer.stop import stop_rule
from peira.trainer.watchdog import Watchdog


class Observer(Protocol):
    """Who watches a run: the progress display, a test, a notebook."""

    def on_event(self, text: str) -> None:
        """Something a person wants to read."""
        ...

    def on_stage(self, stage: str, done: int, planned: int) -> None:
        """Progress inside a step or an evaluation; 0 of 0 when a stage has no count."""
        ...

    def on_step(self, step: int, metrics: Mapping[str, float | int]) -> None:
        """A step is done and written."""
        ...

    def on_eval(self, record: EvalRecord) -> None:
        """A held-out measurement is done and written."""
        ...


class Interrupt:
    """A flag that a signal handler sets."""

    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        """Ask the run to save and end."""
        self.is_set = True

    def check(self) -> None:
        """Raise where a step can be abandoned."""
        if self.is_set:
            raise Abandoned


class Abandoned(Exception):
    """The step was given up before it learnt anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """How a run ended."""

    steps: int
    """Steps taken since the run began, by all its processes together."""
    new_steps: int
    """Steps taken by this call; 0 when there was nothing left to do."""
    before: EvalRecord | None
    after: EvalRecord | None
    checkpoint: Path | None
    duration_s: float


@dataclass(kw_only=True)
class Run:
    """A run under way: configuration, parts, and what is written where."""

    config: RunConfig
    parts: Parts
    writer: RunWriter
    sink: MetricSink
    observer: Observer
    interrupt: Interrupt = field(default_factory=Interrupt)
    anchors: TrainBatch | None = None
    """Filled by `train` where the algorithm wants them."""

    @property
    def checkpoints(self) -> Path:
        """The folder of its checkpoints."""
        return self.writer.folder.path / "checkpoints"


async def train(run: Run) -> Summary:
    """Take every planned step that has not been taken yet.

    A run folder that holds checkpoints is continued from the newest whole one: what was recorded after it is
    taken out and done again, and comes out the same.

    Raises:
        StopRun: a stop rule fired, or the run was interrupted; everything up to the last step is saved.
        SyncError: the sampler does not hold the learner's weights; the step did not happen.
    """
    started = time.monotonic()
    state = await restore(run)
    first = state.step
    with Watchdog(run.config.stop.stage_timeout_s) as dog:
        try:
            run.anchors = await open_anchors(run, state, dog)
            if run.config.evaluation.before and state.step == 0:
                await measure(run, state, dog)
            while state.step < run.config.steps:
                run.interrupt.check()
                state, result = await advance(run, state, dog)
                if due(run.config.evaluation.every_steps, state.step):
                    state = await measure(run, state, dog)
                if due(run.config.checkpoint.every_steps, state.step):
                    await save(run, state, dog)
                stop = stop_rule(run.config, state, result)
                if stop is not None:
                    await save(run, state, dog)
                    raise stop
            if run.config.evaluation.after:
                state = await measure(run, state, dog)
        except Abandoned:
            path = await save(run, state, dog)
            raise StopRun(
                f"interrupted after {state.step} of {run.config.steps} steps; saved {path}: "
                "continue with --resume",
                ExitCode.INTERRUPTED,
            ) from None
        path = await save(run, state, dog)
    evals = {record.step: record for record in RunReader(run.writer.folder.path).evals()}
    return Summary(
        steps=state.step,
        new_steps=state.step - first,
        before=evals.get(0),
        after=evals.get(state.step),
        checkpoint=path,
        duration_s=time.monotonic() - started,
    )


async def restore(run: Run) -> TrainerState:
    """Continue from the newest whole checkpoint, or begin; either way the folder holds nothing later."""
    found, damaged = latest_checkpoint(run.checkpoints, fingerprint=trace_fingerprint(run.config))
    for line in damaged:
        run.observer.on_event(f"passed over a damaged checkpoint: {line}")
    state = found.state if found is not None else TrainerState(tasks=run.parts.tasks.state())
    accounted = max((entry.step for entry in run.writer.ledger.entries), default=0)
    if min(run.writer.last_step, accounted) < state.step:
        run.observer.on_event(
            f"metrics or ledger end before the checkpoint's step {state.step}: something else cut or removed "
            "them; the report lacks those steps"
        )
    lost = run.writer.truncate_after(state.step)
    discard_after(run.checkpoints, state.step)
    if found is not None:
        await run.parts.engine.load(found.path)
        run.parts.tasks.restore(state.tasks)
        run.observer.on_event(
            f"resumed from {found.path}: {state.step} of {run.config.steps} steps taken, "
            f"{max(0, run.config.steps - state.step)} to go"
            + (f"; {lost['rollouts']} rollouts behind it are drawn again" if lost["rollouts"] else "")
        )
    return state


async def open_anchors(run: Run, state: TrainerState, dog: Watchdog) -> TrainBatch | None:
    """The anchors: sampled before the first step, read again by a run that is continued."""
    settings, path = run.config.algorithm.anchors, run.writer.folder.anchors_file
    if settings is None:
        return None
    if state.step > 0:
        return load_anchors(path, temperature=run.config.sampling.temperature)
    dog.beat("sync")
    await run.parts.engine.sync_weights()
    anchors = await sample_anchors(
        settings, run.config, run.parts, path, beat=dog.beat, check=run.interrupt.check
    )
    run.observer.on_event(
        f"{anchors.num_sequences} anchors from {settings.tasks} x {settings.samples} samples: {path.name}"
    )
    return anchors


async def advance(run: Run, state: TrainerState, dog: Watchdog) -> tuple[TrainerState, StepResult]:
    """One step, written down before anything else happens."""
    began = time.perf_counter()
    dog.beat("sync")
    receipt = await run.parts.engine.sync_weights()

    def beat(stage: str, done: int = 0, planned: int = 0) -> None:
        dog.beat(stage)
        run.observer.on_stage(stage, done, planned)

    try:
        result = await take_step(
            state.step + 1,
            run.config,
            run.parts,
            state.algorithm,
            anchors=step_anchors(run, state.step + 1),
            beat=beat,
            check=run.interrupt.check,
        )
    except Abandoned:
        run.parts.tasks.restore(state.tasks)
        raise
    metrics = step_metrics(result, run.config, receipt)
    metrics["policy/version"] = run.parts.engine.policy_version
    metrics |= run.parts.tasks.metrics()
    metrics["time/step_s"] = time.perf_counter() - began
    record(run, state.step + 1, result, metrics)
    too_many = (metrics["verifier/unjudged_fraction"] or 0.0) > run.config.judging.max_unjudged_fraction
    after = replace(
        state,
        step=state.step + 1,
        policy_version=run.parts.engine.policy_version,
        tasks=run.parts.tasks.state(),
        algorithm=result.remembered,
        dead_steps=0 if result.updates else state.dead_steps + 1,
        unjudged_steps=state.unjudged_steps + 1 if too_many else 0,
        accuracy=None,
    )
    return after, result


def step_anchors(run: Run, step: int) -> TrainBatch | None:
    """The anchors that stand beside this step's updates."""
    settings = run.config.algorithm.anchors
    if settings is None or run.anchors is None:
        return None
    return anchors_of(step, run.anchors, per_step=settings.per_step)


def record(run: Run, step: int, result: StepResult, metrics: Mapping[str, float | None]) -> None:
    """Rollouts first, then the ledger, then metrics: a step with metrics is a step that is all there."""
    if run.config.logging.rollouts:
        table = [
            [
                float(a) if member.reward is not None else None
                for a, member in zip(row, g.rollouts, strict=True)
            ]
            for row, g in zip(result.advantages, result.groups, strict=True)
        ]
        run.writer.write_rollouts(step, result.groups, table, result.fates)
    run.writer.write_ledger(LedgerEntry.of(step, result.groups, result.fates))
    written = run.writer.write_metrics(step, metrics)
    run.sink.write(step, written)
    run.observer.on_step(step, written)


async def measure(run: Run, state: TrainerState, dog: Watchdog) -> TrainerState:
    """Measure on held-out questions, unless the folder has the result for this step already."""
    config = run.config
    done = {record.step: record for record in RunReader(run.writer.folder.path).evals()}
    record = done.get(state.step)
    if record is None:
        if not run.parts.held_out:
            return state
        dog.beat("sync")
        await run.parts.engine.sync_weights()

        def progress(finished: int, planned: int) -> None:
            dog.beat("evaluate")
            run.observer.on_stage("evaluate", finished, planned)
            run.interrupt.check()

        record, questions = await evaluate(
            run.parts.engine,
            run.parts.tokenizer,
            run.parts.held_out,
            run.parts.judge,
            config.evaluation,
            step=state.step,
            max_tokens=config.sampling.max_tokens,
            stop_strings=config.sampling.stop_strings,
            stop_token_ids=config.sampling.stop_token_ids,
            seed=config.seed,
            audit=run.parts.audit,
            on_rollout=progress,
        )
        run.writer.write_eval(record, questions)
        for note in record.notes:
            run.observer.on_event(note)
        metrics = {**eval_metrics(record), **record.observations, "time/eval_s": record.duration_s}
        run.sink.write(state.step, run.writer.write_metrics(state.step, metrics))
        run.observer.on_eval(record)
    return replace(state, accuracy=record.headline_estimate.value)


async def save(run: Run, state: TrainerState, dog: Watchdog) -> Path:
    """Write a checkpoint, then delete those that retention does not keep."""
    dog.beat("save")
    run.observer.on_stage("save", 0, 0)
    run.writer.sync()
    path = await save_checkpoint(
        run.checkpoints, run.parts.engine, state, fingerprint=trace_fingerprint(run.config)
    )
    settings = run.config.checkpoint
    prune_checkpoints(run.checkpoints, keep_last=settings.keep_last, keep_best=settings.keep_best)
    return path


def due(every: int, steps_taken: int) -> bool:
    """Whether something that happens every so many steps happens now; 0 means never."""
    return every > 0 and steps_taken % every == 0
