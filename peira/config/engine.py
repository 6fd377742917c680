"""Which machine samples and learns."""

from typing import Annotated, Literal

from pydantic import Field

from peira.config.section import KIND, Section


class LocalEngineConfig(Section):
    """One process holds sampler and learner: the default, and the one to debug in."""

    kind: Literal["local"] = "local"
    device: str = "auto"
    """auto: CUDA, then MPS, then CPU; or any torch device name."""
    max_rows: int = Field(default=128, ge=1)
    """Completions decoded together; changes memory and speed, never a completion."""
    share_prompts: bool = True
    """Compute a group's prompt once per micro-batch in the learner, where the model allows it."""
    gradient_checkpointing: bool = False
    """Trade a second forward pass for activation memory; turns off share_prompts."""
    sync_tolerance: float | None = Field(default=None, gt=0)
    """Largest canary gap in nats that counts as in sync; None: 1e-3 for float32, 0.25 for narrower types."""
    threads: int | None = Field(default=None, ge=1)
    """torch intra-op threads; None leaves torch's choice. Exact resume needs the same number."""


class ScriptedEngineConfig(Section):
    """Canned completions and no model: tests, and dry runs of the line."""

    kind: Literal["scripted"] = "scripted"
    completions: tuple[str, ...] = ("",)
    """Texts given in turn to the samples of each request."""


EngineConfig = Annotated[LocalEngineConfig | ScriptedEngineConfig, *KIND]
