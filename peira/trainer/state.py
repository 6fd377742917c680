"""What a checkpoint restores beside the engine's own state, as one record."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any

from peira.config.run import RunConfig
from peira.config.section import Section
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
    """A hash of those `trace_settings` that differ from their defaults.

    Defaults are left out so that a later version, with settings that this one lacks, can continue the run.
    """
    changed = {key: value for key, value in _changed(run).items() if key in trace_settings(run)}
    return hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()


def _changed(value: Any) -> Any:
    """Sections as mappings of what is not at its default; a `kind` always counts."""
    if isinstance(value, Section):
        fields = type(value).model_fields
        return {
            name: _changed(getattr(value, name))
            for name, field in fields.items()
            if name == "kind" or getattr(value, name) != field.get_default(call_default_factory=True)
        }
    if isinstance(value, tuple | list):
        return [_changed(item) for item in value]
    return value
