"""Tasks drawn by how much a group of rollouts is likely to teach: neither mastered nor out of reach.

Every task has a Beta posterior of its pass rate, from the rollouts that a run has judged. A task is drawn
with weight E[p (1 - p)] over it, half the chance that two rollouts disagree; a share of the weight is spread
over all tasks, so that none is given up for good.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from peira.config.data import CurriculumConfig
from peira.data.sampler import Pool, TaskSampler
from peira.errors import CheckpointError, DataError
from peira.types.task import Task


class CurriculumSampler(TaskSampler):
    """Draws tasks by the pass rates seen so far.

    Between pools each draw goes to the one furthest behind its weight, as without a curriculum; within a pool
    one call draws no task twice, unless it asks for more than there are. Which are drawn is a function of the
    seed, the number drawn before, and the posteriors; these are in `state`.

    Example:
        >>> tasks = [Task(id=name, prompt=name) for name in "ab"]
        >>> pool = Pool(name="all", tasks=tuple(tasks))
        >>> sampler = CurriculumSampler([pool], seed=0, settings=CurriculumConfig())
        >>> sampler.observe(tasks[0], passed=0, judged=8)
        >>> sampler.expected_pass_rate(tasks[0])
        0.1

    Source: the weight and the fading are ours; p (1 - p) is the variance of a binary reward.
    """

    def __init__(self, pools: Sequence[Pool], *, seed: int, settings: CurriculumConfig) -> None:
        super().__init__(pools, seed=seed)
        ids = [task.id for pool in pools for task in pool.tasks]
        if len(set(ids)) < len(ids):
            raise DataError("data: curriculum: task ids: expected each once: pass rates are kept by id")
        self._settings = settings
        self._seen: dict[str, tuple[float, float]] = {}

    def draw(self, n: int) -> list[Task]:
        """The next `n` tasks."""
        before = tuple(self._drawn)
        turns = [self._turn() for _ in range(n)]
        orders = {i: iter(self._ranked(i, before[i], turns.count(i))) for i in set(turns)}
        return [next(orders[i]) for i in turns]

    def observe(self, task: Task, *, passed: int, judged: int) -> None:
        """Older evidence on the task fades by `memory`, then this is added."""
        if judged == 0:
            return
        right, wrong = self._seen.get(task.id, (0.0, 0.0))
        keep = self._settings.memory
        self._seen[task.id] = (keep * right + passed, keep * wrong + judged - passed)

    def expected_pass_rate(self, task: Task) -> float:
        """Mean of the task's posterior; one half for a task never seen."""
        right, wrong = self._seen.get(task.id, (0.0, 0.0))
        return (right + 1) / (right + wrong + 2)

    def weight(self, task: Task) -> float:
        """E[p (1 - p)] under Beta(1 + passed, 1 + failed), in units of that of a task never seen (1/6)."""
        right, wrong = self._seen.get(task.id, (0.0, 0.0))
        a, b = right + 1, wrong + 1
        return 6 * a * b / ((a + b) * (a + b + 1))

    def metrics(self) -> dict[str, float]:
        """What the other sampler says, and what is known of the tasks."""
        rates = [self.expected_pass_rate(task) for task in self.tasks if task.id in self._seen]
        known = {"data/seen_fraction": len(rates) / self.num_tasks}
        if rates:
            known["data/pass_rate_mean"] = sum(rates) / len(rates)
            known["data/mastered_fraction"] = sum(rate > 0.9 for rate in rates) / len(rates)
        return {**super().metrics(), **known}

    def filter(self, keep: Callable[[Task], bool]) -> "CurriculumSampler":
        """A sampler at position 0 over the tasks that `keep` accepts."""
        pools = [replace(pool, tasks=tuple(filter(keep, pool.tasks))) for pool in self._pools]
        return CurriculumSampler(pools, seed=self._seed, settings=self._settings)

    def state(self) -> dict[str, Any]:
        """Where the sampler stands, pass rates included."""
        return {**super().state(), "seen": {name: list(counts) for name, counts in self._seen.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        if "seen" not in state:
            raise CheckpointError(
                "data: curriculum = on: expected a checkpoint that was written with one; start a new run, or "
                "leave data.curriculum out"
            )
        super().restore(state)
        self._seen = {name: (float(right), float(wrong)) for name, (right, wrong) in state["seen"].items()}

    def _turn(self) -> int:
        index = self._furthest_behind()
        self._drawn[index] += 1
        return index

    def _ranked(self, index: int, drawn: int, count: int) -> list[Task]:
        """`count` tasks of a pool: weighted draws without replacement, pass after pass.

        Source: Efraimidis and Spirakis 2006: the largest log(u) / w come first.
        """
        pool = self._pools[index]
        weights = [self.weight(task) for task in pool.tasks]
        even = sum(weights) / len(weights)
        explore = self._settings.explore
        tosses = random.Random(f"curriculum {self._seed} {pool.name} {drawn}")
        keys = [
            math.log(1 - tosses.random()) / ((1 - explore) * weight + explore * even) for weight in weights
        ]
        order = sorted(range(len(keys)), key=lambda i: -keys[i])
        return [pool.tasks[order[i % len(order)]] for i in range(count)]
