"""The readable version and the library are the same algorithm: one loss trace, two programs."""

import asyncio
import importlib.util
import json
import sys
from pathlib import Path

import pytest

from peira.build.run import prepare, run_training
from peira.config.load import load_config
from peira.models.catalogue import resolve
from peira.runs.reader import RunReader

RECIPE = Path(__file__).parents[2] / "recipes" / "grpo_in_one_file.py"


class Nobody:
    """Watches nothing."""

    def on_event(self, text): ...
    def on_stage(self, stage, done, planned): ...
    def on_step(self, step, metrics): ...
    def on_eval(self, record): ...


@pytest.fixture
def one_file():
    spec = importlib.util.spec_from_file_location("grpo_in_one_file", RECIPE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_one_file_recipe_and_the_library_have_one_loss_trace(one_file, tmp_path):
    data = tmp_path / "tasks.jsonl"
    pairs = [(37, 58), (25, 66), (11, 17), (84, 9), (46, 46), (73, 19)]
    data.write_text(
        "".join(json.dumps({"prompt": f"{a}+{b}=", "answer": str(a + b)}) + "\n" for a, b in pairs)
    )
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        json.dumps(
            {
                "name": "library",
                "runs_dir": str(tmp_path),
                "steps": 4,
                "prompts_per_step": 2,
                "group_size": 4,
                "model": "tiny-arith",
                "engine": {"kind": "local", "device": "cpu"},
                "data": {"path": str(data), "shuffle": False, "held_out_fraction": 0},
                "verifiers": [{"kind": "numeric"}],
                "sampling": {"max_tokens": 48},
                "optimizer": {"lr": 1e-3},
                "evaluation": {"before": False, "after": False},
                "logging": {"tensorboard": False},
            }
        )
    )
    with prepare(load_config(recipe, [])) as prepared:
        asyncio.run(run_training(prepared, Nobody(), resume=False))
    library = RunReader(tmp_path / "library").metrics()

    settings = one_file.Settings(
        model=str(resolve("tiny-arith")),
        data=str(data),
        steps=4,
        prompts=2,
        group=4,
        max_tokens=48,
        lr=1e-3,
    )
    plain = list(one_file.train(settings))

    assert [m["reward"] for m in plain] == pytest.approx([m["reward/mean"] for m in library])
    live = [(a, b) for a, b in zip(plain, library, strict=True) if b["policy/updates"]]
    assert len(live) >= 2, "too few steps with a signal to compare anything"
    for ours, theirs in live:
        assert ours["loss"] == pytest.approx(theirs["policy/loss"], abs=1e-5)
        assert ours["grad_norm"] == pytest.approx(theirs["policy/grad_norm"], rel=1e-3)


def test_the_one_file_recipe_stays_one_file_a_person_reads():
    lines = RECIPE.read_text().splitlines()
    assert len(lines) <= 300
    assert not any(line.startswith(("import peira", "from peira")) for line in lines)
