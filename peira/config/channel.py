"""What every verifier's settings have in common."""

from pydantic import Field

from peira.config.section import Section


class ChannelConfig(Section):
    """One verifier as a channel of the reward."""

    name: str = ""
    """Of the channel in metrics and reports; the kind when empty."""
    weight: float = 1.0
    """Its share of the reward: reward = sum of weight * score. 0 logs it without training on it (shadow)."""
    always: bool = False
    """Judge every task, also those that name another verifier."""
    timeout_s: float | None = Field(default=None, gt=0)
    """Wall-clock seconds for one attempt, instead of `judging.timeout_s`."""
