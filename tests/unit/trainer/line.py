"""The whole line on a table policy: digits for tokens, a verifier in the same process, nothing to load."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from peira.build.algorithm import build_algorithm
from peira.config.run import RunConfig
from peira.data.sampler import TaskSampler
from peira.engines.scripted import ScriptedEngine
from peira.runs.writer import RunWriter
from peira.trainer.loop import Interrupt, Run, Summary, train
from peira.trainer.sinks import Sinks
from peira.trainer.step import Parts
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict

END = 10


class Digits:
    """Token i is the digit i; 10 ends a completion."""

    vocabulary_size = 11
    end_ids = (END,)
    pad_id = 0

    def render(self, prompt: Any) -> tuple[int, ...]:
        return tuple(int(c) for c in prompt)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return "".join(str(i) for i in token_ids if i != END)


class Silent:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.steps: list[dict[str, float | int]] = []

    def on_event(self, text: str) -> None:
        self.events.append(text)

    def on_stage(self, stage: str, done: int, planned: int) -> None:
        pass

    def on_step(self, step: int, metrics: Mapping[str, float | int]) -> None:
        self.steps.append({"step": step, **metrics})

    def on_eval(self, record: Any) -> None:
        pass


def right_or_wrong(task: Task, attempt: Attempt) -> Verdict:
    return Verdict(score=float(attempt.text == task.answer))


def begins_right(task: Task, attempt: Attempt) -> Verdict:
    return Verdict(score=float(attempt.text[:1] == task.answer))


def settings(**changes: Any) -> RunConfig:
    values: dict[str, Any] = {
        "steps": 3,
        "prompts_per_step": 2,
        "group_size": 4,
        "model": "none",
        "data": "none.jsonl",
        "verifiers": ["exact"],
        "sampling": {"max_tokens": 3},
        "optimizer": {"lr": 0.1},
        "evaluation": {"before": False, "after": False},
        "checkpoint": {"every_steps": 1},
        "logging": {"tensorboard": False},
    }
    return RunConfig.model_validate({**values, **changes})


def go(
    folder: Path,
    config: RunConfig,
    engine: ScriptedEngine,
    *,
    verify: Callable[[Task, Attempt], Verdict] = right_or_wrong,
    answers: Sequence[str] = ("7", "3", "5"),
    reference: ScriptedEngine | None = None,
    resume: bool = False,
    interrupt: Interrupt | None = None,
    observer: Silent | None = None,
    changed: Mapping[str, Any] | None = None,
) -> Summary:
    """Train in this folder; `changed` replaces parts by name."""

    async def judge(attempts: Sequence[tuple[Task, Attempt]]) -> list[dict[str, Verdict]]:
        return [{"exact": verify(task, attempt)} for task, attempt in attempts]

    tasks = [Task(id=answer, prompt=f"1{answer}", answer=answer) for answer in answers]
    parts = Parts(
        engine=engine,
        reference=reference,
        tokenizer=Digits(),
        tasks=TaskSampler.of(tasks, seed=0),
        held_out=tasks,
        judge=judge,
        combine=lambda verdicts: verdicts["exact"].score,
        channels=("exact",),
        algorithm=build_algorithm(config.algorithm, max_tokens=config.sampling.max_tokens),
    )
    parts = replace(parts, **(changed or {}))
    observer = observer or Silent()
    with RunWriter.create(folder, "", resume=resume) as writer:
        sink = Sinks(folder, observer.on_event)
        run = Run(
            config=config,
            parts=parts,
            writer=writer,
            sink=sink,
            observer=observer,
            interrupt=interrupt or Interrupt(),
        )
        return asyncio.run(train(run))


def table_engine(**options: Any) -> ScriptedEngine:
    return ScriptedEngine(vocabulary_size=Digits.vocabulary_size, end_ids=[END], **options)
