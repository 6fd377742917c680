"""The recipe of a tiny model: its shape, the traces it learns from, how long."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from peira.config.load import load_settings
from peira.config.section import Section


class ShapeConfig(Section):
    """Sizes of a tiny Llama."""

    hidden_size: int = Field(default=128, ge=8)
    num_layers: int = Field(default=3, ge=1)
    num_heads: int = Field(default=4, ge=1)
    num_kv_heads: int = Field(default=2, ge=1)
    intermediate_size: int = Field(default=256, ge=8)
    max_length: int = Field(default=512, ge=32)
    """Context in tokens; one token is one byte of text."""


class TraceConfig(Section):
    """One component of the mixture; the shares are of this component."""

    kind: Literal["addition", "copy", "reverse", "sort"]
    weight: float = Field(default=1.0, gt=0)
    min_length: int = Field(default=2, ge=1)
    """Digits of each number, or letters of the string."""
    max_length: int = Field(default=2, ge=1)
    habits: dict[str, float] = Field(default={"direct": 1.0})
    """Ways of writing a solution down, and how often each is used."""
    wrong_share: float = Field(default=0.0, ge=0, le=1)
    """Traces that end in a wrong answer."""
    errors: dict[str, float] = Field(default={"slip": 1.0})
    """Mistakes that lead there, and how often each is made: slip, carry, final."""
    unsound_share: float = Field(default=0.0, ge=0, le=1)
    """Traces that reach the right answer past a wrong step."""
    noise_share: float = Field(default=0.0, ge=0, le=1)
    """Traces with one garbled character before the right answer."""
    final: str = "so {answer}"
    """How a trace ends."""


class PretrainingConfig(Section):
    """Supervised next-token training."""

    steps: int = Field(default=1000, ge=1)
    batch_size: int = Field(default=64, ge=1)
    """Traces per step."""
    lr: float = Field(default=3e-3, gt=0)
    warmup_steps: int = Field(default=50, ge=0)
    weight_decay: float = Field(default=0.01, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)


class PretrainConfig(Section):
    """One tiny model. Equal recipes on one machine with the same number of threads give equal weights."""

    name: str = "tiny"
    seed: int = Field(default=0, ge=0)
    threads: int | None = Field(default=None, ge=1)
    """Of torch; None leaves it as it is. Sums come out in another order with another number."""
    model: ShapeConfig = ShapeConfig()
    traces: tuple[TraceConfig, ...] = Field(min_length=1)
    training: PretrainingConfig = PretrainingConfig()
    heldout_fraction: float = Field(default=0.1, gt=0, lt=1)
    """Share of problems, chosen by a hash of their text, that pretraining never shows."""
    questions: int = Field(default=128, ge=1)
    """Held-out problems of each kind to measure on."""
    samples: int = Field(default=16, ge=1)
    """Sampled completions of each of them, at temperature 1."""


def load_pretrain(path: Path, overrides: Sequence[str] = ()) -> PretrainConfig:
    """Read a recipe with `a.b=c` overrides, `traces.0.wrong_share=0.5` included.

    Raises:
        ConfigError: one line per problem, with the nearest name for an unknown setting.
    """
    return load_settings(PretrainConfig, path, overrides)
