"""A real run in miniature: the shipped character-level model adds two numbers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml


@pytest.fixture
def write_recipe(tmp_path: Path) -> Callable[..., Path]:
    """Write the miniature's recipe, changed as told, and give its path."""

    def write(**changes: Any) -> Path:
        recipe: dict[str, Any] = {
            "name": "tiny",
            "runs_dir": str(tmp_path / "runs"),
            "steps": 6,
            "prompts_per_step": 4,
            "group_size": 6,
            "model": "tiny-arith",
            "engine": {"kind": "local", "device": "cpu", "threads": 1},
            "data": {
                "sources": [{"path": "synthetic:addition", "size": 60}],
                "prompt_template": "{a}+{b}=",
                "held_out_fraction": 0.2,
            },
            "verifiers": [{"kind": "numeric"}],
            "sampling": {"max_tokens": 64},
            "optimizer": {"lr": 1e-4},
            "evaluation": {"before": False, "after": False},
            "checkpoint": {"every_steps": 2},
            "logging": {"tensorboard": False},
        }
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump({**recipe, **changes}))
        return path

    return write


WALL_CLOCK = ("time", "throughput", "memory")


def trace(run: Path) -> list[dict[str, Any]]:
    """The metrics of a run without what a clock had a part in: every loss, bit for bit."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [
        {key: value for key, value in line.items() if key.split("/")[0] not in WALL_CLOCK} for line in lines
    ]
