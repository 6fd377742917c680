"""Groups in, scored groups out: verdicts from the pool, one reward per rollout."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal

from peira.types.rollout import Group, Rollout
from peira.types.scored import ScoredGroup, ScoredRollout
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict

Judge = Callable[[Sequence[tuple[Task, Attempt]]], Awaitable[Sequence[Mapping[str, Verdict]]]]
"""Attempts -> verdicts by channel, in order. What could not be judged comes back as a verdict too."""
Combine = Callable[[Mapping[str, Verdict]], float | None]
"""Verdicts of one attempt -> reward; None when a channel that counts was not judged."""
Shape = Callable[[Rollout], Mapping[str, float]]
"""Rollout -> amounts added to its reward, by name."""


def attempts_of(groups: Sequence[Group]) -> list[tuple[Task, Attempt]]:
    """Every rollout of these groups as something to judge, group by group."""
    return [(group.task, Attempt.of(rollout)) for group in groups for rollout in group.rollouts]


async def score_groups(
    groups: Sequence[Group],
    judge: Judge,
    *,
    combine: Combine,
    truncated: Literal["score", "zero", "mask"],
    shape: Shape | None = None,
) -> list[ScoredGroup]:
    """Judge every rollout and give it its reward.

    A rollout that was not judged has no reward, and `excluded` says why. A completion cut off by the token
    budget is judged as it is ("score"), worth 0 ("zero"), or without a reward ("mask").
    """
    verdicts = await judge(attempts_of(groups))
    expected = sum(len(group.rollouts) for group in groups)
    if len(verdicts) != expected:
        raise RuntimeError(f"score: {len(verdicts)} verdicts for {expected} rollouts")
    ahead = iter(verdicts)
    return [
        ScoredGroup(
            task=group.task,
            rollouts=tuple(
                _scored(rollout, next(ahead), combine, truncated, shape) for rollout in group.rollouts
            ),
        )
        for group in groups
    ]


def _scored(
    rollout: Rollout,
    verdicts: Mapping[str, Verdict],
    combine: Combine,
    truncated: Literal["score", "zero", "mask"],
    shape: Shape | None,
) -> ScoredRollout:
    outcome = combine(verdicts)
    excluded = ""
    if outcome is None:
        excluded = next((v.status.value for v in verdicts.values() if not v.judged), "unjudged")
    elif rollout.truncated and truncated == "mask":
        outcome, excluded = None, "masked_truncated"
    elif rollout.truncated and truncated == "zero":
        outcome = 0.0
    shaping = {} if shape is None or outcome is None else dict(shape(rollout))
    return ScoredRollout(
        rollout=rollout,
        verdicts=dict(verdicts),
        outcome=outcome,
        reward=None if outcome is None else outcome + sum(shaping.values()),
        excluded=excluded,
        shaping=shaping,
    )
