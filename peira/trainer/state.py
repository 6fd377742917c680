"""What a checkpoint restores beside the engine's own state, as one record."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any

from peira.config.run import RunConfig
from peira.errors import CheckpointError


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerState:
    """Where the loop stands. Random numbers need no place here: they are functions of seed, step and draw."""

    step: int = 0
    """The next step to take; `step` steps are done."""
    policy_version: int = 0
    tasks: dict[str, Any] = field(default_factory=dict)
    """Position of the task sampler, as it describes itself."""
    algorithm: dict[str, float] = field(default_factory=dict)
    """What the algorithm remembers between steps, if it does."""
    dead_steps: int = 0
    """Steps on end without a signal."""
    unjudged_steps: int = 0
    """Steps on end with too many unjudged rollouts."""
    accuracy: float | None = None
    """Held-out accuracy when this was written, if it had been measured at this step."""

    def to_json(self) -> str:
        """The record as JSON."""
        return json.dumps(asdict(self), indent=2, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "TrainerState":
        """The record of a `to_json`."""
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise CheckpointError(
                f"trainer state: {error}: expected what this version of peira writes"
            ) from error


def trace_settings(run: RunConfig) -> dict[str, Any]:
    """The settings that decide the loss trace: what a resumed run may not change.

    How long the run is (unless the learning rate depends on it), what is measured, saved, logged and when to
    give up are left out.
    """
    free = {"name", "runs_dir", "evaluation", "checkpoint", "stop", "logging"}
    if run.optimizer.schedule == "constant":
        free.add("steps")
    return run.model_dump(mode="json", exclude=free)


def trace_fingerprint(run: RunConfig) -> str:
    """A hash of `trace_settings`."""
    return hashlib.sha256(json.dumps(trace_settings(run), sort_keys=True).encode()).hexdigest()
