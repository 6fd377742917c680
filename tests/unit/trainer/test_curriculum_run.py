"""The curriculum in the loop."""

import pytest
from pydantic import ValidationError

from peira.config.data import CurriculumConfig, DataConfig
from peira.data.curriculum import CurriculumSampler
from peira.data.sampler import Pool
from peira.types.task import Task
from tests.unit.trainer.line import Silent, go, settings, table_engine


def run(folder, steps, *, resume=False):
    pool = Pool(name="all", tasks=tuple(Task(id=a, prompt=f"1{a}", answer=a) for a in "0123456789"))
    tasks = CurriculumSampler([pool], seed=0, settings=CurriculumConfig(explore=0.05))
    observer = Silent()
    engine = table_engine(completions=[[7], [1], [7], [2]])  # 7 is solved half the time, 1 and 2 a quarter
    go(folder, settings(steps=steps), engine, observer=observer, changed={"tasks": tasks}, resume=resume)
    return tasks, observer.steps


def test_the_loop_tells_the_sampler_how_each_task_fared(tmp_path):
    tasks, steps = run(tmp_path, 40)
    seen = tasks.state()["seen"]
    assert all(seen[name][0] == 0 for name in seen if name not in "127")
    assert seen["7"][0] == seen["7"][1] > 0  # two of four, each time
    assert steps[-1]["data/seen_fraction"] == 1.0
    weights = {task.id: tasks.weight(task) for task in tasks.tasks}
    assert max(weights, key=weights.get) == "7"


def test_a_resumed_run_draws_what_the_whole_one_draws(tmp_path):
    whole, _ = run(tmp_path / "whole", 8)
    run(tmp_path / "parts", 4)
    parts, _ = run(tmp_path / "parts", 8, resume=True)
    assert parts.state() == whole.state()


def test_an_order_and_a_curriculum_contradict_each_other():
    with pytest.raises(ValidationError, match="the curriculum decides the order"):
        DataConfig.model_validate({"path": "a", "shuffle": False, "curriculum": {}})
