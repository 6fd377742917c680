"""Which task comes next: a pure function of the seed, the data and how many were drawn before."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import Any

from peira.data.fingerprint import content_hash
from peira.errors import CheckpointError, DataError
from peira.types.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The tasks of one source and its share of the draws."""

    name: str
    tasks: tuple[Task, ...]
    weight: float = 1.0
    """Relative to the other pools of the sampler."""

    def __post_init__(self) -> None:
        if not self.tasks:
            raise DataError(
                f"data: {self.name} = no tasks: expected at least one; see what was left out and why"
            )


class TaskSampler:
    """Draws tasks, epoch after epoch, from one or several pools.

    Between pools, each draw goes to the one that is furthest behind its weight, so after any number of draws
    every pool has its share to within the number of pools. Within a pool every task comes once per epoch; the
    order of an epoch depends on the seed, the epoch and the tasks' ids, not on the order of the rows in the
    file (with `shuffle=False` it is the order of the rows). Where one draw crosses an epoch, or asks for more
    tasks than there are, a task can appear twice in it.

    Example:
        >>> tasks = [Task(id=name, prompt=name) for name in "abc"]
        >>> sampler = TaskSampler.of(tasks, seed=0)
        >>> first, state = sampler.draw(2), sampler.state()
        >>> rest = sampler.draw(4)
        >>> again = TaskSampler.of(tasks, seed=0)
        >>> again.restore(state)
        >>> again.draw(4) == rest
        True
    """

    def __init__(self, pools: Sequence[Pool], *, seed: int, shuffle: bool = True) -> None:
        names = [pool.name for pool in pools]
        if not names or len(set(names)) != len(names):
            raise DataError(f"data: sources = {names}: expected at least one, with different names")
        self._pools = tuple(pools)
        self._seed = seed
        self._shuffle = shuffle
        # Whole numbers in the proportion of the weights: the schedule never meets a rounding error.
        exact = [Fraction(pool.weight) for pool in pools]
        self._shares = [int(share * lcm(*(share.denominator for share in exact))) for share in exact]
        self._drawn = [0] * len(pools)
        self._orders: dict[int, tuple[int, Sequence[int]]] = {}

    @classmethod
    def of(cls, tasks: Sequence[Task], *, seed: int, shuffle: bool = True) -> "TaskSampler":
        """A sampler over one pool."""
        return cls([Pool(name="tasks", tasks=tuple(tasks))], seed=seed, shuffle=shuffle)

    @property
    def pools(self) -> tuple[Pool, ...]:
        """What is drawn from."""
        return self._pools

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Every task that can be drawn, pool after pool, in the order of the rows."""
        return tuple(task for pool in self._pools for task in pool.tasks)

    @property
    def num_tasks(self) -> int:
        """How many different tasks there are."""
        return sum(len(pool.tasks) for pool in self._pools)

    @property
    def position(self) -> int:
        """How many tasks have been drawn."""
        return sum(self._drawn)

    @property
    def epochs(self) -> Mapping[str, float]:
        """By pool: how many times its tasks have been gone through, the fraction included."""
        return {
            pool.name: drawn / len(pool.tasks) for pool, drawn in zip(self._pools, self._drawn, strict=True)
        }

    def draw(self, n: int) -> list[Task]:
        """The next `n` tasks."""
        return [self._next() for _ in range(n)]

    def observe(self, task: Task, *, passed: int, judged: int) -> None:
        """Told of every task that was drawn how its rollouts fared; here it changes nothing."""

    def metrics(self) -> dict[str, float]:
        """How far the data has been gone through."""
        return {"data/tasks": self.position, "data/epoch": max(self.epochs.values())}

    def filter(self, keep: Callable[[Task], bool]) -> "TaskSampler":
        """A sampler at position 0 over the tasks that `keep` accepts.

        Raises:
            DataError: nothing is left of a pool.
        """
        pools = [replace(pool, tasks=tuple(filter(keep, pool.tasks))) for pool in self._pools]
        return TaskSampler(pools, seed=self._seed, shuffle=self._shuffle)

    def state(self) -> dict[str, Any]:
        """Where the sampler stands, as JSON: enough to go on exactly, and to notice that the data changed."""
        return {
            "seed": self._seed,
            "shuffle": self._shuffle,
            "drawn": {pool.name: drawn for pool, drawn in zip(self._pools, self._drawn, strict=True)},
            "pools": {
                pool.name: {
                    "weight": pool.weight,
                    "tasks": len(pool.tasks),
                    "fingerprint": fingerprint,
                }
                for pool, fingerprint in zip(self._pools, self._fingerprints, strict=True)
            },
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken.

        Raises:
            CheckpointError: it was taken with another seed, other weights or other data; the message names
                which, and the sampler is left as it was.
        """
        now = self.state()
        try:
            drawn = [state["drawn"][pool.name] for pool in self._pools]
            for key in ("seed", "shuffle"):
                _require_equal(f"data: {key}", state[key], now[key])
            _require_equal("data: sources", sorted(state["pools"]), sorted(now["pools"]))
            for name, pool in now["pools"].items():
                for key in ("weight", "tasks", "fingerprint"):
                    _require_equal(f"data: {name}: {key}", state["pools"][name][key], pool[key])
        except (KeyError, TypeError) as error:
            known = sorted(state["pools"]) if isinstance(state, Mapping) and "pools" in state else state
            names = [pool.name for pool in self._pools]
            raise CheckpointError(
                f"data: sampler state = {known!r}: expected one of the sources {names}; "
                "resume with the data settings of the checkpoint, or start a new run"
            ) from error
        self._drawn = drawn

    def _next(self) -> Task:
        index = self._furthest_behind()
        pool, drawn = self._pools[index], self._drawn[index]
        self._drawn[index] += 1
        epoch, offset = divmod(drawn, len(pool.tasks))
        return pool.tasks[self._order(index, epoch)[offset]]

    def _furthest_behind(self) -> int:
        """The pool whose share of all draws, this one included, exceeds what it was given by most."""
        position, total = self.position + 1, sum(self._shares)
        return max(
            range(len(self._pools)),
            key=lambda i: (self._shares[i] * position - self._drawn[i] * total, -i),
        )

    def _order(self, index: int, epoch: int) -> Sequence[int]:
        known_epoch, order = self._orders.get(index, (-1, ()))
        if known_epoch != epoch:
            tasks = self._pools[index].tasks
            order = range(len(tasks))
            if self._shuffle:
                salt = f"{self._seed}/{epoch}/".encode()
                order = sorted(order, key=lambda i: hashlib.sha256(salt + tasks[i].id.encode()).digest())
            self._orders[index] = (epoch, order)
        return order

    @cached_property
    def _fingerprints(self) -> list[str]:
        """By pool, 16 hex digits; the order of the rows counts only when they are drawn in that order."""
        digests = []
        for pool in self._pools:
            hashes = [
                content_hash(task.id, task.prompt, task.answer, task.verifier, task.info)
                for task in pool.tasks
            ]
            digests.append(content_hash(sorted(hashes) if self._shuffle else hashes)[:16])
        return digests


def _require_equal(place: str, then: object, now: object) -> None:
    if then != now:
        raise CheckpointError(
            f"{place} = {now!r}: expected {then!r}, as when the checkpoint was written; "
            "resume with the same data and settings, or start a new run"
        )
