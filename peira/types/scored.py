"""Rollouts with their verdicts and the reward they will be trained on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from peira.types.rollout import Rollout
from peira.types.task import Task
from peira.types.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRollout:
    """A rollout, what every verifier said of it, and the number it is trained on."""

    rollout: Rollout
    verdicts: Mapping[str, Verdict]
    """By channel: the verifier's name in the configuration."""
    outcome: float | None
    """Weighted scores before shaping: what collapse is judged on. None exactly when `reward` is."""
    reward: float | None
    """Outcome plus shaping; None when it was not judged or is masked out."""
    excluded: str = ""
    """Why `reward` is None: a verdict status, or "masked_truncated"; empty otherwise."""
    shaping: Mapping[str, float] = field(default_factory=dict)
    """What was added to the weighted scores, by name (overlong penalty, ...)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroup:
    """The G scored rollouts of one task."""

    task: Task
    rollouts: tuple[ScoredRollout, ...]
