"""How rewards become a gradient. The named combinations are rows of `presets.py`."""

import difflib
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from peira.config.presets import PRESETS
from peira.config.section import Section


class KLConfig(Section):
    """A penalty for leaving the reference; which divergence it descends depends on estimator and place."""

    coefficient: float = Field(default=0.0, ge=0)
    """0 means no reference model is loaded."""
    estimator: Literal["k1", "k2", "k3"] = "k3"
    """k2: towards the reference along KL(policy || reference); k3: along KL(reference || policy)."""
    place: Literal["loss"] = "loss"
    """Where the penalty acts."""


class AlgorithmConfig(Section):
    """A row of `presets.py`, with any field changed."""

    shorthand: ClassVar[str | None] = "name"

    name: str = "standard"
    """The preset that fills every field not given here."""
    baseline: Literal["group_mean", "leave_one_out"] = "group_mean"
    """Subtracted from a reward: the mean of its whole group, or of the other members."""
    scale: Literal["none", "population_std", "sample_std"] = "none"
    """Divide centred rewards by the group's standard deviation, of this kind, or keep reward units."""
    std_eps: float = Field(default=1e-6, ge=0)
    """Added to that standard deviation, in reward units."""
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    """The ratio is held at or above 1 - clip_low."""
    clip_high: float = Field(default=0.28, gt=0)
    """The ratio is held at or below 1 + clip_high."""
    dual_clip: float | None = Field(default=None, gt=1)
    """Bound the loss of a negative advantage at this many times its size; None leaves it unbounded."""
    average: Literal["sequence_mean", "sequence_sum", "token_mean", "constant"] = "token_mean"
    """How token losses are averaged; see `algorithms.policy_loss.token_weights`."""
    count_dead: bool = False
    """Whether rollouts of groups without a signal count in the average's denominator, as in the papers'
    formulas (a half dead batch makes half the step), or the live groups share the whole step."""
    dynamic_sampling: bool = False
    """Draw again until `prompts_per_step` groups have a signal, within `max_refills` further draws."""
    max_refills: int = Field(default=3, ge=0)
    """Further draws of dynamic sampling within one step."""
    overlong_buffer_tokens: int = Field(default=0, ge=0)
    """Soft overlong penalty over the last this many tokens before `sampling.max_tokens`; 0 for none."""
    overlong_penalty: float = Field(default=1.0, ge=0)
    """Subtracted, in reward units, when the completion reaches `sampling.max_tokens`."""
    kl: KLConfig = KLConfig()
    """Penalty for leaving the reference."""

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, dict):
            return value
        name = value.get("name", cls.model_fields["name"].default)
        if name not in PRESETS:
            near = difflib.get_close_matches(str(name), PRESETS, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"name = {name!r}: expected one of {', '.join(PRESETS)}; {hint}".rstrip("; "))
        return _merged(PRESETS[name], value)


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both mappings at every depth; where they disagree, the second wins."""
    result = below | above
    for key in below.keys() & above.keys():
        if isinstance(below[key], dict) and isinstance(above[key], dict):
            result[key] = _merged(below[key], above[key])
    return result
