"""What a checkpoint restores beside the engine's own state, as one record."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from peira.errors import CheckpointError


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerState:
    """Where the loop stands. Random numbers need no place here: they are functions of seed, step and draw."""

    step: int = 0
    """The next step to take; `step` steps are done."""
    policy_version: int = 0
    tasks: dict[str, Any] = field(default_factory=dict)
    """Position of the task sampler, as it describes itself."""
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
