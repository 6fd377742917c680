"""The recipe of a tiny model: its shape, the traces it learns from, how long."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import Field, ValidationError

from peira.config.section import Section
from peira.errors import ConfigError


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
    try:
        merged = OmegaConf.create(path.read_text(encoding="utf-8") or "{}")
        for override in overrides:
            name, equals, value = override.partition("=")
            if not equals:
                raise ConfigError(f"command line: {override!r}: expected setting=value")
            OmegaConf.update(merged, name, yaml.safe_load(value))
        values = OmegaConf.to_container(merged, resolve=True)
        return PretrainConfig.model_validate(values)
    except ValidationError as error:
        lines = []
        for problem in error.errors():
            key = ".".join(map(str, problem["loc"]))
            line = f"{path}: {key} = {problem['input']!r}: expected {problem['msg']}"
            if problem["type"] == "extra_forbidden":
                line = f"{path}: {key}: there is no such setting"
                sections = (PretrainConfig, ShapeConfig, TraceConfig, PretrainingConfig)
                known = {name for section in sections for name in section.model_fields}
                if near := get_close_matches(str(problem["loc"][-1]), known, n=1):
                    line += f"; did you mean {near[0]!r}?"
            lines.append(line)
        raise ConfigError("\n".join(lines)) from error
    except OSError as error:
        raise ConfigError(f"{path}: expected a recipe ({error.strerror})") from error
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"{path}: expected YAML settings ({error})") from error
