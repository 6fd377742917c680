"""Habits and shadow rewards: seen in every step, trained on in none."""

import torch

from peira.plots.curves import sections
from peira.runs.reader import RunReader
from peira.types.verdict import Verdict
from peira.verifiers.channels import combine
from tests.unit.trainer.line import Silent, go, settings, table_engine

COMPLETIONS = [[7], [1, 2], [2, 1], [7, 7]]  # texts "7", "12", "21", "77"


def test_the_share_of_completions_with_a_pattern_is_recorded_and_drawn(tmp_path):
    config = settings(
        steps=1, logging={"tensorboard": False, "habits": {"ones": "1", "ends": "2$", "none": "^$"}}
    )
    observer = Silent()
    go(tmp_path, config, table_engine(completions=COMPLETIONS), observer=observer)
    (step,) = observer.steps
    # of "7", "12", "21", "77": two hold a 1, one ends in 2, none is empty
    assert step["habit/ones_fraction"] == 0.5
    assert step["habit/ends_fraction"] == 0.25
    assert step["habit/none_fraction"] == 0.0
    reader = RunReader(tmp_path)
    charts = [c for s in sections(reader.metrics(), [], reader.ledger()) for c in s.charts]
    (chart,) = [chart for chart in charts if chart.title == "Habits"]
    assert [line.name for line in chart.series] == ["ends_fraction", "none_fraction", "ones_fraction"]


def test_a_shadow_reward_is_recorded_and_drawn_and_changes_no_weight(tmp_path):
    def shadowed(score):
        async def judge(attempts):
            return [
                {"exact": Verdict(score=float(a.text == t.answer)), "shadow": Verdict(score=score(a.text))}
                for t, a in attempts
            ]

        return {
            "judge": judge,
            "combine": lambda verdicts: combine(verdicts, {"exact": 1.0, "shadow": 0.0}),
            "channels": ("exact", "shadow"),
        }

    tables = []
    for name, score in (("a", lambda text: float("1" in text)), ("b", lambda text: 0.0)):
        engine, observer = table_engine(completions=COMPLETIONS), Silent()
        go(tmp_path / name, settings(steps=2), engine, observer=observer, changed=shadowed(score))
        tables.append(engine._table.detach().clone())
        assert observer.steps[0]["score/shadow"] == (0.5 if name == "a" else 0.0)
    assert torch.equal(*tables)
    reader = RunReader(tmp_path / "a")
    charts = [c for s in sections(reader.metrics(), [], reader.ledger()) for c in s.charts]
    (chart,) = [chart for chart in charts if chart.title == "Scores by verifier"]
    assert "shadow" in [line.name for line in chart.series]
