"""What a run asks of its verifiers beside judging: do they accept the worthless, and are they being gamed?

Neither answer has a way into a reward: both are counted, logged and shown.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from peira.pipeline.score import Judge
from peira.types.rollout import Group
from peira.types.task import Task
from peira.types.verdict import Attempt
from peira.verifiers.calibrate import accepted, worthless_attempts
from peira.verifiers.code.gap import GapReport, macro_gap

GapAudit = Callable[[Task, Attempt], GapReport | None]
"""Visible against held-out tests of one attempt; None where there is nothing to compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worthless:
    """How a verifier took attempts that deserve nothing: empty, the question back, a spray of answers, ..."""

    tried: int
    accepted: int
    example: str = ""
    """One that got the full score."""


async def probe_worthless(judge: Judge, tasks: Sequence[Task], channel: str) -> Worthless:
    """Judge worthless attempts at these tasks on one channel; the accepted share should be 0.

    A policy under pressure finds any text that is always accepted, so this is asked again and again during a
    run, with the verifier as it is then.
    """
    attempts = worthless_attempts(tasks)
    verdicts = await judge(attempts)
    kept = [(attempt, by[channel]) for attempt, by in zip(attempts, verdicts, strict=True) if channel in by]
    found = accepted([attempt for attempt, _ in kept], [verdict for _, verdict in kept])
    return Worthless(tried=len(kept), accepted=len(found), example=found[0][1] if found else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class HackingGap:
    """Visible against held-out tests over several tasks, in percent and percentage points."""

    tasks: int
    visible: float
    heldout: float
    gap: float
    """Mean over tasks of visible minus held-out; negative when the held-out tests went better."""
    flagged: float
    """Share of programs that look written for the visible tests; beside the gap, never part of it."""


async def hacking_gap(audit: GapAudit, groups: Sequence[Group]) -> HackingGap | None:
    """Run the held-out tests of these rollouts; None when no task has any.

    A gap proves no intent: where a held-out test needs several features at once, it is there without any.
    """
    attempts = [(group.task, Attempt.of(rollout)) for group in groups for rollout in group.rollouts]
    found = [await asyncio.to_thread(audit, task, attempt) for task, attempt in attempts]
    reports = [report for report in found if report is not None]
    if not reports:
        return None
    return HackingGap(
        tasks=len(reports),
        visible=sum(report.visible for report in reports) / len(reports),
        heldout=sum(report.heldout for report in reports) / len(reports),
        gap=macro_gap(reports),
        flagged=sum(bool(report.flags) for report in reports) / len(reports),
    )
