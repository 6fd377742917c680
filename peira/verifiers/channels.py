"""Several verifiers side by side, and the one number that a rollout is trained on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from peira.errors import ConfigError, DataError
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict
from peira.verifiers.pool import Job, WorkerPool
from peira.verifiers.protocol import Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One verifier with its name and its share of the reward."""

    name: str
    verifier: Verifier
    weight: float = 1.0
    """0 logs its verdicts and never trains on them."""
    always: bool = False
    """Judge every task, also those that name another verifier."""
    timeout_s: float | None = None
    """Instead of the limit for all."""


class VerifierSet:
    """Judges attempts on every channel that applies to their task, in a pool of worker processes.

    A task that names a verifier is judged by that channel and by those marked `always`; any other by all.
    Use it as a context manager, or call `close`.
    """

    def __init__(
        self,
        channels: Sequence[Channel],
        *,
        workers: int = 2,
        timeout_s: float = 10.0,
        memory_limit_bytes: int | None = 2 * 1024**3,
    ) -> None:
        names = [channel.name for channel in channels]
        if not names or len(set(names)) != len(names):
            raise ConfigError(f"verifiers: names = {names}: expected at least one, each with its own name")
        self.channels = tuple(channels)
        self.weights = {channel.name: channel.weight for channel in channels}
        self.pool = WorkerPool(
            {channel.name: channel.verifier for channel in channels},
            workers=workers,
            timeout_s=timeout_s,
            memory_limit_bytes=memory_limit_bytes,
        )

    def applying(self, task: Task) -> list[Channel]:
        """The channels that judge this task.

        Raises:
            DataError: the task names a verifier that does not exist.
        """
        if task.verifier is None:
            return list(self.channels)
        if task.verifier not in self.weights:
            nearest = get_close_matches(task.verifier, self.weights, n=1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise DataError(
                f"task {task.id!r}: verifier = {task.verifier!r}: expected one of "
                f"{sorted(self.weights)}{hint}"
            )
        return [channel for channel in self.channels if channel.always or channel.name == task.verifier]

    def check(self, tasks: Iterable[Task]) -> None:
        """Raise `DataError` for the first task that nobody here can judge."""
        for task in tasks:
            self.applying(task)

    async def judge(self, attempts: Sequence[tuple[Task, Attempt]]) -> list[dict[str, Verdict]]:
        """Verdicts by channel name, in the order of the attempts."""
        jobs, owners = self._jobs(attempts)
        return _joined(await self.pool.judge(jobs), owners, len(attempts))

    def judge_blocking(self, attempts: Sequence[tuple[Task, Attempt]]) -> list[dict[str, Verdict]]:
        """`judge` for callers without an event loop."""
        jobs, owners = self._jobs(attempts)
        return _joined(self.pool.judge_blocking(jobs), owners, len(attempts))

    def combine(self, verdicts: Mapping[str, Verdict]) -> float | None:
        """The reward of one attempt with this set's weights; see `combine`."""
        return combine(verdicts, self.weights)

    def close(self) -> None:
        """End the worker processes."""
        self.pool.close()

    def __enter__(self) -> "VerifierSet":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _jobs(self, attempts: Sequence[tuple[Task, Attempt]]) -> tuple[list[Job], list[tuple[int, str]]]:
        jobs, owners = [], []
        for index, (task, attempt) in enumerate(attempts):
            for channel in self.applying(task):
                jobs.append(
                    Job(verifier=channel.name, task=task, attempt=attempt, timeout_s=channel.timeout_s)
                )
                owners.append((index, channel.name))
        return jobs, owners


def _joined(
    verdicts: Sequence[Verdict], owners: Sequence[tuple[int, str]], num_attempts: int
) -> list[dict[str, Verdict]]:
    table: list[dict[str, Verdict]] = [{} for _ in range(num_attempts)]
    for (index, name), verdict in zip(owners, verdicts, strict=True):
        table[index][name] = verdict
    return table


def combine(verdicts: Mapping[str, Verdict], weights: Mapping[str, float]) -> float | None:
    """sum of weight * score over the channels that judged; None when there is no reward.

    There is none when a channel with a weight was not judged (dropping it would change what the reward
    means), or when no channel with a weight looked at the attempt. Channels of weight 0 count for nothing,
    judged or not.

    Example:
        >>> combine({"math": Verdict(score=1.0), "format": Verdict(score=0.5)}, {"math": 1.0, "format": 0.2})
        1.1
    """
    counted = [(weights[name], verdict) for name, verdict in verdicts.items() if weights[name] != 0]
    scores = [(weight, verdict.score) for weight, verdict in counted if verdict.score is not None]
    if not counted or len(scores) < len(counted):
        return None
    return sum(weight * score for weight, score in scores)
