"""Appeals: a second opinion sees a share of what was rejected, to learn how often the verifiers err."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from peira.pipeline.score import Judge
from peira.types.scored import ScoredGroup
from peira.types.verdict import Attempt
from peira.verifiers.calibrate import Appeals


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What one step's verdicts and appeals amount to."""

    accepted: int
    """Judged rollouts with an outcome above one half."""
    rejected: int
    appealed: int
    """Rejections on which the second opinion had a verdict."""
    overturned: int
    """Of those, the ones it finds right."""


async def hear_appeals(groups: Sequence[ScoredGroup], second: Judge, *, share: float, seed: int) -> Tally:
    """Show this share of the rejections to `second`; no verdict and no reward is changed.

    Which rejections are appealed follows from the seed and the rollouts' ids: a resumed run appeals the same.

    Source: arXiv:2510.00915, appeals.
    """
    judged = [r for group in groups for r in group.rollouts if r.outcome is not None]
    rejected = [r for r in judged if r.outcome is not None and r.outcome <= 0.5]
    appeals = Appeals(rate=share)
    chosen = [r for r in rejected if appeals.is_appealed(f"{seed}/{r.rollout.id}")]
    asked = [(replace(r.rollout.task, verifier=None), Attempt.of(r.rollout)) for r in chosen]
    verdicts = await second(asked) if asked else []
    scores = [v.score for each in verdicts for v in each.values() if v.score is not None]
    return Tally(
        accepted=len(judged) - len(rejected),
        rejected=len(rejected),
        appealed=len(scores),
        overturned=sum(score > 0.5 for score in scores),
    )
