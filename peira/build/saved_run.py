"""A saved run's rollouts, with their tasks as the data has them."""

import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from peira.build.data import build_tasks
from peira.config.load import load_config
from peira.errors import PeiraError, RunError
from peira.runs.reader import RunReader
from peira.types.scored import ScoredRollout
from peira.types.task import Task


class SavedRun:
    """What is needed to judge a run's rollouts again.

    Raises:
        RunError: there is no such run, or its rollouts were not kept.
    """

    def __init__(self, path: Path) -> None:
        self._reader = RunReader(path)
        self.config_file = path / "config.yaml"
        self.steps = self._reader.rollout_steps()
        if not self.steps:
            raise RunError(
                f"run folder: {path}: expected rollouts to judge, found none; a run keeps them with "
                "logging.rollouts=true, from its first step on"
            )

    def rollouts(self, step: int) -> Iterator[tuple[Task, ScoredRollout]]:
        """Each rollout of a step with its task."""
        for recorded in self._reader.rollouts(step):
            task = self._tasks.get(recorded.group.task.id, recorded.group.task)
            for rollout in recorded.group.rollouts:
                yield task, rollout

    @cached_property
    def _tasks(self) -> dict[str, Task]:
        """The run's tasks with all their columns; the record keeps only the answer."""
        try:
            config = load_config(self.config_file, notice=lambda text: None)
            sets = build_tasks(config.data, config.seed)
        except PeiraError as error:
            print(f"peira verify: judging without the data's other columns: {error}", file=sys.stderr)
            return {}
        return {task.id: task for task in (*sets.train.tasks, *sets.held_out)}
