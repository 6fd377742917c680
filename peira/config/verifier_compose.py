"""Settings of verifiers made of verifiers."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from peira.config.channel import ChannelConfig


def _nested(value: Any) -> Any:
    """Refuse what is no verifier; keep it as it is written, for these may nest."""
    from peira.config.load import load_settings  # later: it knows this module
    from peira.config.verifier import JudgesConfig

    load_settings(JudgesConfig, {"verifiers": [value]}, notice=lambda text: None)
    if isinstance(value, dict):
        return value
    return {"kind": "function", "ref": value} if ":" in value else {"kind": value}


Nested = Annotated[dict[str, Any], BeforeValidator(_nested)]
"""Any verifier, as in the run's own list."""


class WeightedSumConfig(ChannelConfig):
    """The weighted mean of several verifiers' scores, as one channel."""

    kind: Literal["weighted_sum"] = "weighted_sum"
    of: tuple[Nested, ...] = Field(min_length=1)
    """Verifiers, each with its own `weight`."""


class AllOfConfig(ChannelConfig):
    """The lowest score of several verifiers, asked in order."""

    kind: Literal["all_of"] = "all_of"
    of: tuple[Nested, ...] = Field(min_length=1)
    """Verifiers; a score of 0 ends the asking."""


class FirstThatAppliesConfig(ChannelConfig):
    """The verdict of the first verifier that does not abstain."""

    kind: Literal["first_that_applies"] = "first_that_applies"
    of: tuple[Nested, ...] = Field(min_length=1)
    """Verifiers, in the order to ask."""


class GatedConfig(ChannelConfig):
    """The score of one verifier where another is content, else 0."""

    kind: Literal["gated"] = "gated"
    gate: Nested
    """The verifier that must be content."""
    of: Nested
    """The verifier that gives the score."""
    threshold: float = Field(default=1.0, ge=0, le=1)
    """The gate opens at this score."""


class LengthShapedConfig(ChannelConfig):
    """A score that shrinks with the length of the completion."""

    kind: Literal["length_shaped"] = "length_shaped"
    of: Nested
    """The verifier that gives the score."""
    free: int = Field(ge=0)
    """Up to this length nothing is taken."""
    limit: int = Field(ge=1)
    """From this length on, `floor` of the score is left; in between a straight line."""
    floor: float = Field(default=0.0, ge=0, le=1)
    """Share of the score that is left at `limit`."""
    unit: Literal["tokens", "characters", "words"] = "tokens"
    """What is counted."""

    @model_validator(mode="after")
    def _in_order(self) -> "LengthShapedConfig":
        if self.free >= self.limit:
            raise ValueError(f"free = {self.free} and limit = {self.limit}: expected free below limit")
        return self


class PerTurnConfig(ChannelConfig):
    """Every completion of a conversation judged by itself."""

    kind: Literal["per_turn"] = "per_turn"
    of: Nested
    """The verifier that judges each turn."""
    reduce: Literal["mean", "min", "last", "product"] = "last"
    """How the turns' scores become one."""


class StepsConfig(ChannelConfig):
    """The score of a verifier of steps, made of its step scores."""

    kind: Literal["steps"] = "steps"
    of: Nested
    """A verifier that gives step scores."""
    reduce: Literal["mean", "min", "last", "product"] = "min"
    """How the steps' scores become one."""


class NoisyConfig(ChannelConfig):
    """Another verifier's right/wrong verdicts, flipped at known rates. For studies."""

    kind: Literal["noisy"] = "noisy"
    of: Nested
    """The verifier whose verdicts are flipped."""
    false_positive_rate: float = Field(default=0.0, ge=0, le=1)
    """P(judged right | wrong)."""
    false_negative_rate: float = Field(default=0.0, ge=0, le=1)
    """P(judged wrong | right)."""
    threshold: float = Field(default=1.0, ge=0, le=1)
    """Scores from here on count as right."""
    seed: int = 0
    """The flips follow from it, the task and the completion."""


class IncorrectConfig(ChannelConfig):
    """A control: 1 for an answer that another verifier reads and finds wrong. For studies."""

    kind: Literal["incorrect"] = "incorrect"
    of: Nested
    """The verifier whose verdicts are turned round; where it reads no answer the score stays 0."""
    threshold: float = Field(default=1.0, ge=0, le=1)
    """Scores from here on count as right."""


class MajorityConfig(ChannelConfig):
    """A control: another verifier, with the most frequent of earlier answers as its reference."""

    kind: Literal["majority"] = "majority"
    of: Nested
    """The verifier that compares."""
    column: str
    """Column of the data that holds the list of earlier answers."""


ComposedConfig = (
    WeightedSumConfig
    | AllOfConfig
    | FirstThatAppliesConfig
    | GatedConfig
    | LengthShapedConfig
    | PerTurnConfig
    | StepsConfig
    | NoisyConfig
    | IncorrectConfig
    | MajorityConfig
)
