"""Estimates against numbers worked out by hand, and what happens to what could not be judged."""

import asyncio
import math

import pytest

from peira.config.run import EvaluationConfig
from peira.errors import DataError
from peira.trainer.evaluate import default_ks, evaluate, mean_over_questions, proportion
from peira.types.task import Task
from peira.types.verdict import Verdict, VerdictStatus
from peira.verifiers.code.gap import GapReport
from tests.unit.trainer.line import Digits, table_engine

TASKS = [Task(id=str(i), prompt=f"1{i}", answer=str(i)) for i in range(4)]


def measure(verify, *, completions=None, tasks=TASKS, audit=None, **settings):
    async def judge(attempts):
        return [{"exact": verify(task, attempt)} for task, attempt in attempts]

    engine = table_engine(completions=completions)
    return asyncio.run(
        evaluate(
            engine,
            Digits(),
            tasks,
            judge,
            EvaluationConfig.model_validate(settings),
            step=3,
            max_tokens=4,
            seed=0,
            audit=audit,
        )
    )


def exact(task, attempt):
    return Verdict(score=float(attempt.text == task.answer))


def test_greedy_accuracy_is_the_share_of_questions_with_wilsons_interval():
    record, questions = measure(exact, completions=[[1]])
    found = record.estimates["accuracy"]
    # one of four right: centre (p + z^2/2n) / (1 + z^2/n), half z sqrt(p(1-p)/n + z^2/4n^2) / (1 + z^2/n)
    p, n, z = 0.25, 4, 1.959963985
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    assert (found.value, found.num_questions) == (0.25, 4)
    assert (found.low, found.high) == pytest.approx((centre - half, centre + half))
    assert [q.completions[0].right for q in questions] == [False, True, False, False]


def test_pass_at_k_is_the_unbiased_estimate_averaged_over_questions():
    # samples of each question say 1, 2, 1, 3: question 1 has c = 2 of n = 4, questions 2 and 3 have c = 1
    record, _ = measure(exact, completions=[[1], [2], [1], [3]], greedy=False, samples=4, ks=(1, 2))
    # pass@1 = c / n, mean (0 + 2/4 + 1/4 + 1/4) / 4; pass@2 = 1 - C(4-c, 2) / C(4, 2): 0, 5/6, 1/2, 1/2
    assert record.estimates["pass_at_1"].value == pytest.approx(0.25)
    assert record.estimates["pass_at_2"].value == pytest.approx((5 / 6 + 0.5 + 0.5) / 4)
    assert record.headline == "pass_at_1"


def test_what_was_not_judged_is_neither_right_nor_wrong():
    def verify(task, attempt):
        return Verdict.broken(VerdictStatus.TIMEOUT, "") if task.id == "0" else exact(task, attempt)

    record, questions = measure(verify, completions=[[1]])
    assert record.estimates["accuracy"].value == pytest.approx(1 / 3)
    assert record.estimates["accuracy"].num_questions == 3
    assert record.num_unjudged == 1
    assert questions[0].completions[0].right is None


def test_part_marks_do_not_count_as_solving():
    record, _ = measure(lambda *_: Verdict(score=0.9), completions=[[1]])
    assert record.estimates["accuracy"].value == 0.0


def test_when_nothing_can_be_judged_that_is_an_error():
    with pytest.raises(DataError, match="not one completion could be judged"):
        measure(lambda *_: Verdict.broken(VerdictStatus.ERROR, "x"), completions=[[1]])


def test_no_questions_is_an_error_and_not_an_accuracy():
    with pytest.raises(DataError, match="0 questions"):
        measure(exact, tasks=[])


def test_a_verifier_that_accepts_the_worthless_is_named_at_every_evaluation():
    record, _ = measure(lambda *_: Verdict(score=1.0), completions=[[1]])
    assert record.observations["verifier/worthless_accepted_fraction"] == 1.0
    assert "worthless" in record.notes[0]
    honest, _ = measure(exact, completions=[[1]])
    assert honest.observations["verifier/worthless_accepted_fraction"] == 0.0
    assert honest.notes == ()


def test_the_hacking_gap_is_seen_beside_the_estimates_and_changes_none():
    def audit(task, attempt):
        # task 0: 4 of 4 visible, 1 of 2 held out (gap 50); task 1: 2 of 4, 1 of 2 (gap 0); others have none
        passed = {"0": (4, 1), "1": (2, 1)}.get(task.id)
        if passed is None:
            return None
        return GapReport(
            task_id=task.id,
            visible_passed=passed[0],
            visible_total=4,
            heldout_passed=passed[1],
            heldout_total=2,
            flags=("literal",) if task.id == "0" else (),
        )

    plain, _ = measure(exact, completions=[[1]])
    seen, _ = measure(exact, completions=[[1]], audit=audit)
    assert seen.estimates == plain.estimates
    assert seen.observations["hacking/visible_percent"] == 75.0
    assert seen.observations["hacking/heldout_percent"] == 50.0
    assert seen.observations["hacking/gap_points"] == 25.0
    assert seen.observations["hacking/flagged_fraction"] == 0.5


def test_sources_are_measured_apart():
    tasks = [Task(id=str(i), prompt="1", answer="1", source="ab"[i % 2]) for i in range(4)]
    record, _ = measure(lambda task, _: Verdict(score=float(task.source == "a")), tasks=tasks)
    assert {name: e.value for name, e in record.by_source.items()} == {"a": 1.0, "b": 0.0}


def test_powers_of_two_up_to_half_of_the_samples():
    assert default_ks(64) == (1, 2, 4, 8, 16, 32)
    assert default_ks(5) == (1, 2)
    assert default_ks(1) == (1,)


def test_a_bootstrap_that_sees_no_spread_claims_no_certainty():
    found = mean_over_questions([1.0] * 10, 0.95)
    # Wilson at 10 of 10: upper end 1, lower end 1 / (1 + z^2 / n)
    assert found.high == pytest.approx(1.0)
    assert found.low == pytest.approx(1 / (1 + 1.959963985**2 / 10))
    assert proportion([1] * 10, 0.95).low == pytest.approx(found.low)


def test_the_interval_holds_the_mean_and_narrows_with_questions():
    few, many = (mean_over_questions([0.0, 0.5, 1.0, 0.5] * n, 0.95) for n in (3, 30))
    for found in (few, many):
        assert found.low < 0.5 < found.high
    assert many.high - many.low < (few.high - few.low) / 2
