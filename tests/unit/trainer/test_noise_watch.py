"""Verifiers that err, in the loop: appeals, rates, the alarm, and the predicted fate."""

import math

import pytest

from peira.algorithms.noise import informedness_from_appeals
from peira.build.algorithm import check_rates
from peira.config.algorithm import NoiseConfig
from peira.errors import ConfigError, ExitCode, StopRun
from peira.plots.curves import sections
from peira.runs.reader import RunReader
from peira.trainer.noise import rate_tables
from peira.types.rollout import Completion, Rollout, StopReason, Turn
from peira.types.scored import ScoredGroup, ScoredRollout
from peira.types.task import Task
from peira.types.verdict import Verdict
from tests.unit.trainer.line import Silent, go, settings, table_engine

COMPLETIONS = [[7], [1], [7, 7], [2]]  # "7" is accepted; the second opinion accepts "77" too


def lenient(accepts):
    """A second opinion, and what it was shown."""
    shown = []

    async def judge(attempts):
        shown.extend(attempt.text for _, attempt in attempts)
        return [{"second": Verdict(score=float(accepts(attempt.text)))} for _, attempt in attempts]

    return judge, shown


def appealing(name="standard", *, steps=2, **noise):
    appeals = {"verifier": "exact", "share": 1.0, "decay": 0.9, **noise.pop("appeals", {})}
    return settings(steps=steps, algorithm={"name": name, "noise": {"appeals": appeals, **noise}})


# --- the estimate -------------------------------------------------------------------------------------------


def test_the_estimate_by_hand():
    # a tenth of 40 rejections is right: 4 missed of 4 + 60; Wilson 95% of 4 in 40 is .0396 to .2305
    rate, gain, low, high = informedness_from_appeals(
        accepted=60, rejected=40, appealed=40, overturned=4, false_positive_rate=0.0, confidence=0.95
    )
    assert rate == pytest.approx(4 / 64)
    assert gain == pytest.approx(1 - 4 / 64)
    assert low == pytest.approx(1 - 40 * 0.2305 / (40 * 0.2305 + 60), abs=1e-4)
    assert high == pytest.approx(1 - 40 * 0.0396 / (40 * 0.0396 + 60), abs=1e-4)


def test_false_positives_are_taken_out_of_the_accepted():
    # 36 wrong ones rejected at a false positive rate of .2: 45 wrong in all, 9 accepted; right: 4 + 51
    rate, gain, _, _ = informedness_from_appeals(
        accepted=60, rejected=40, appealed=20, overturned=2, false_positive_rate=0.2, confidence=0.95
    )
    assert rate == pytest.approx(4 / 55)
    assert gain == pytest.approx(0.8 - 4 / 55)


def test_without_appeals_or_anything_right_there_is_no_estimate():
    given = {"false_positive_rate": 0.0, "confidence": 0.95}
    assert informedness_from_appeals(accepted=5, rejected=5, appealed=0, overturned=0, **given) is None
    assert informedness_from_appeals(accepted=0, rejected=5, appealed=5, overturned=0, **given) is None


def test_where_every_acceptance_may_be_false_nothing_is_known():
    # 40 rejections at a false positive rate of .5 explain 40 acceptances; there are 42
    found = informedness_from_appeals(
        accepted=42, rejected=60, appealed=60, overturned=20, false_positive_rate=0.5, confidence=0.95
    )
    assert found is not None
    assert found[0] == pytest.approx(20 / 22)
    assert found[2] == pytest.approx(0.5 - 1.0)


# --- in the loop --------------------------------------------------------------------------------------------


def test_appeals_are_heard_and_the_next_step_is_corrected_with_their_estimate(tmp_path):
    second, shown = lenient(lambda text: text == "77")
    observer = Silent()
    go(
        tmp_path,
        appealing("backward_noise", correction="backward"),
        table_engine(completions=COMPLETIONS),
        answers=["7"],
        observer=observer,
        changed={"second_opinion": second},
    )
    assert shown == ["1", "77", "2"] * 4  # rejections of two groups in each of two steps
    for step in observer.steps:  # per step: 2 accepted, 6 rejected and appealed, 2 of them right
        assert (step["noise/appealed"], step["noise/overturned"]) == (6, 2)
        assert step["noise/false_negative_rate"] == pytest.approx(2 / 4)
        assert step["noise/informedness"] == pytest.approx(0.5)
        assert step["noise/informedness_low"] < 0.5 < step["noise/informedness_high"]
    reader = RunReader(tmp_path)
    # step 1 knows of no error: 1 against the others' 0. Step 2: (1 - 0) / (1 - .5) = 2.
    assert next(iter(reader.rollouts(1))).advantages == pytest.approx((1, -1 / 3, -1 / 3, -1 / 3))
    assert next(iter(reader.rollouts(2))).advantages == pytest.approx((2, -2 / 3, -2 / 3, -2 / 3))
    # audit of step 2: (1 + 3 x 1/3) / 4, and the same direction
    assert observer.steps[0]["noise/gap_mean"] == 0.0
    assert observer.steps[1]["noise/gap_mean"] == pytest.approx(0.5)
    assert observer.steps[1]["noise/cosine"] == pytest.approx(1.0)


def test_the_interval_tightens_with_more_steps_up_to_the_memory(tmp_path):
    second, _ = lenient(lambda text: text == "77")
    observer = Silent()
    engine = table_engine(completions=COMPLETIONS)
    config = appealing(steps=8)
    go(tmp_path, config, engine, answers=["7"], observer=observer, changed={"second_opinion": second})
    widths = [s["noise/informedness_high"] - s["noise/informedness_low"] for s in observer.steps]
    assert widths == sorted(widths, reverse=True)


def test_a_verifier_that_tells_nothing_apart_stops_the_run(tmp_path):
    second, _ = lenient(lambda text: True)  # all that was rejected is right, nothing is accepted: J = 0
    config = appealing(steps=9, appeals={"min_appeals": 12})
    with pytest.raises(StopRun, match=r"step 2: .*J = 1 .* = 0\.00.*after 16 appeals.*--audit") as caught:
        go(
            tmp_path,
            config,
            table_engine(completions=[[1], [2], [1, 1], [2, 2]]),
            answers=["7"],
            changed={"second_opinion": second},
        )
    assert caught.value.exit_code == ExitCode.VERIFIER


def test_a_verifier_that_errs_a_little_goes_on(tmp_path):
    second, _ = lenient(lambda text: False)
    config = appealing(steps=4, appeals={"min_appeals": 6})
    engine = table_engine(completions=COMPLETIONS)
    assert go(tmp_path, config, engine, answers=["7"], changed={"second_opinion": second}).steps == 4


def test_a_resumed_run_appeals_and_estimates_the_same(tmp_path):
    def run(folder, steps, resume=False):
        second, _ = lenient(lambda text: text == "77")
        observer = Silent()
        config = appealing(steps=steps, appeals={"share": 0.5})
        engine = table_engine(completions=COMPLETIONS)
        changed = {"second_opinion": second}
        go(folder, config, engine, answers=["7"], observer=observer, changed=changed, resume=resume)
        return [{k: v for k, v in s.items() if k.startswith("noise/")} for s in observer.steps]

    whole = run(tmp_path / "whole", 6)
    parts = run(tmp_path / "parts", 3) + run(tmp_path / "parts", 6, resume=True)
    assert whole == parts
    assert len({step.get("noise/appealed") for step in whole}) > 1  # half of 6, by chance


# --- rates by source ----------------------------------------------------------------------------------------


def group(source):
    completion = Completion(
        request_id="r", index=0, token_ids=(1,), logprobs=(0.0,), stop_reason=StopReason.END, policy_version=0
    )
    task = Task(id=source, prompt="?", source=source)
    rollout = Rollout(id="r", task=task, turns=(Turn(prompt_ids=(1,), completion=completion, text="1"),))
    member = ScoredRollout(rollout=rollout, verdicts={}, outcome=0.0, reward=0.0)
    return ScoredGroup(task=task, rollouts=(member, member))


def test_a_rollout_has_the_rates_of_its_source_else_the_estimate_else_the_common_ones():
    noise = NoiseConfig.model_validate(
        {
            "correction": "backward",
            "false_positive_rate": 0.1,
            "false_negative_rate": 0.2,
            "rates": [{"source": "b", "false_positive_rate": 0.3, "false_negative_rate": 0.4}],
        }
    )
    positive, negative = rate_tables([group("a"), group("b")], noise, None)
    assert positive.tolist() == [pytest.approx([0.1, 0.1]), pytest.approx([0.3, 0.3])]
    assert negative.tolist() == [pytest.approx([0.2, 0.2]), pytest.approx([0.4, 0.4])]
    _, negative = rate_tables([group("a"), group("b")], noise, 0.5)
    assert negative.tolist() == [pytest.approx([0.5, 0.5]), pytest.approx([0.4, 0.4])]
    _, negative = rate_tables([group("a")], noise, 0.99)  # held at 1 - .1 - min_gain .05
    assert negative.tolist() == [pytest.approx([0.85, 0.85])]


def test_rates_of_an_unknown_source_are_refused_with_the_nearest():
    noise = NoiseConfig.model_validate({"rates": [{"source": "gsm9k"}]})
    with pytest.raises(
        ConfigError, match=r"algorithm\.noise\.rates\.0\.source = 'gsm9k'.*did you mean 'gsm8k'"
    ):
        check_rates(noise, {"gsm8k", "math"})


# --- the fate -----------------------------------------------------------------------------------------------


def test_the_predicted_pass_rate_starts_at_the_first_step_and_follows_the_equation(tmp_path):
    observer = Silent()
    noise = {"false_positive_rate": 0.1, "false_negative_rate": 0.2, "drift_rate": 2.0}
    config = settings(steps=3, group_size=2, algorithm={"name": "grpo", "noise": noise})
    go(tmp_path, config, table_engine(completions=[[7], [1]]), answers=["7"], observer=observer)
    # accepted at first: one half = .8 - .7 p, so p = 3/7; for pairs dp/dt = -2 x .7 x p^2 (1 - p)^2
    wrong, expected = 3 / 7, []
    for _ in range(3):
        expected.append(0.8 - 0.7 * wrong)
        for _ in range(20_000):
            wrong -= 2 * 0.7 * (wrong * (1 - wrong)) ** 2 / 20_000
    seen = [step["noise/predicted_right_fraction"] for step in observer.steps]
    assert seen == pytest.approx(expected, abs=1e-4)
    reader = RunReader(tmp_path)
    charts = [c for s in sections(reader.metrics(), [], reader.ledger()) for c in s.charts]
    (chart,) = [chart for chart in charts if chart.title.startswith("Fate")]
    assert [line.name for line in chart.series] == ["predicted", "accepted"]
    assert math.isclose(chart.series[1].values[0], 0.5)


def test_without_rates_no_fate_is_drawn(tmp_path):
    go(tmp_path, settings(steps=1), table_engine(completions=[[7], [1]]), answers=["7"])
    reader = RunReader(tmp_path)
    charts = [c.title for s in sections(reader.metrics(), [], reader.ledger()) for c in s.charts]
    assert not [title for title in charts if title.startswith("Fate")]
