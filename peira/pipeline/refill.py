"""Draw again for groups without a signal (dynamic sampling)."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from peira.types.scored import ScoredGroup
from peira.types.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What one step drew: every group, kept or not, so that every sample can be accounted for."""

    groups: tuple[ScoredGroup, ...]
    refills: int


async def draw_with_signal(
    draw: Callable[[int], Sequence[Task]],
    score: Callable[[Sequence[Task], int], Awaitable[list[ScoredGroup]]],
    *,
    wanted: int,
    max_refills: int,
    has_signal: Callable[[ScoredGroup], bool],
) -> Drawn:
    """Collect and score `wanted` tasks, then as many more as had no signal, up to `max_refills` times.

    Each refill draws exactly what is missing, so no group with a signal is ever surplus. Groups without a
    signal stay in the result: they are generated samples, and the ledger and the collapse metrics want them.

    Args:
        score: (tasks, number of the first among the step's draws) -> scored groups.
        has_signal: looks at the task reward, before length penalties and KL terms can hide a collapse.
    """
    groups = await score(draw(wanted), 0)
    refills = 0
    while refills < max_refills:
        missing = wanted - sum(has_signal(group) for group in groups)
        if missing <= 0:
            break
        groups += await score(draw(missing), len(groups))
        refills += 1
    return Drawn(groups=tuple(groups), refills=refills)
