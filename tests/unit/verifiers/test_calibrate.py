"""Error rates with intervals, against closed forms, SciPy and numbers worked out by hand."""

import math

import pytest
from scipy.stats import beta

from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict, VerdictStatus
from peira.verifiers.calibrate import (
    Appeals,
    Rate,
    accepted,
    audit,
    calibrate,
    exact,
    sample_rejections,
    wilson,
    worthless_attempts,
)
from peira.verifiers.exact import ExactVerifier
from peira.verifiers.mathematics import MathVerifier
from peira.verifiers.numeric import NumericVerifier

RIGHT, WRONG = Verdict(score=1.0), Verdict(score=0.0)


@pytest.mark.parametrize(
    ("count", "total"), [(0, 10), (1, 10), (5, 10), (10, 10), (3, 1000), (997, 1000), (0, 1)]
)
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_the_exact_interval_is_made_of_beta_quantiles(count, total, confidence):
    tail = (1 - confidence) / 2
    low = beta.ppf(tail, count, total - count + 1) if count else 0.0
    high = beta.ppf(1 - tail, count + 1, total - count) if count < total else 1.0
    assert exact(count, total, confidence) == pytest.approx((low, high), abs=1e-9)


def test_the_wilson_interval_at_hand_worked_numbers():
    # z = 1.959964, z^2 = 3.841459; 0 of n: high = z^2 / (n + z^2) = 3.841459 / 13.841459
    assert wilson(0, 10) == pytest.approx((0.0, 0.277533), abs=1e-6)
    # 5 of 10: centre 0.5, half = z sqrt(0.025 + z^2 / 400) / (1 + z^2 / 10) = 0.263403
    assert wilson(5, 10) == pytest.approx((0.5 - 0.263405, 0.5 + 0.263405), abs=1e-5)
    assert wilson(0, 0) == exact(0, 0) == (0.0, 1.0)


def test_a_count_beyond_its_total_is_refused():
    with pytest.raises(ValueError, match="count = 3"):
        Rate.of(3, 2)


def test_rates_and_informedness_of_an_audited_sample():
    # 200 right, 20 of them rejected; 300 wrong, 6 of them accepted:
    # rates 0.1 and 0.02, J = 0.88, std = sqrt(0.02 * 0.98 / 300 + 0.1 * 0.9 / 200) = 0.02270
    verdicts = [WRONG] * 20 + [RIGHT] * 180 + [RIGHT] * 6 + [WRONG] * 294
    result = calibrate(verdicts, [True] * 200 + [False] * 300)
    assert result.false_negative.estimate == pytest.approx(0.1)
    assert result.false_positive.estimate == pytest.approx(0.02)
    assert result.informedness == pytest.approx(0.88)
    assert result.informedness_std == pytest.approx(0.02270, abs=5e-6)
    assert result.informedness_low < 0.88 - 0.02 < 0.88 + 0.02 < result.informedness_high
    assert result.fate == "learns"


def test_what_was_not_judged_is_counted_apart():
    broken = Verdict.broken(VerdictStatus.ERROR, "x")
    result = calibrate([broken, RIGHT, WRONG], [True, True, False])
    assert result.unjudged == 1
    assert (result.false_negative.total, result.false_positive.total) == (1, 1)


def test_a_verifier_worse_than_chance_is_told():
    verdicts = [WRONG] * 150 + [RIGHT] * 50 + [RIGHT] * 150 + [WRONG] * 50
    result = calibrate(verdicts, [True] * 200 + [False] * 200)
    assert result.informedness == pytest.approx(-0.5)
    assert result.fate == "unlearns"
    assert calibrate([RIGHT, WRONG], [True, False]).fate == "unclear"


def test_auditing_rejections_only_leaves_the_other_rate_unknown():
    result = calibrate([WRONG, WRONG], [True, True])
    assert math.isnan(result.false_positive.estimate)
    assert (result.false_positive.low, result.false_positive.high) == (0.0, 1.0)
    assert math.isnan(result.informedness)
    assert result.fate == "unclear"


def test_appeals_estimate_what_was_missed():
    # 2 of the appealed tenth overturned: 20 missed; (20 + 1e-5) / (80 + 2e-5); 0.9 * 0.1 + 0.1 * 0.25 = 0.115
    start = Appeals(rate=0.1)
    assert start.updated(num_accepted=60, num_appealed=40, num_overturned=2).estimate == pytest.approx(0.115)
    # no flips: the estimate falls by the decay, nearly
    assert start.updated(num_accepted=60, num_appealed=40, num_overturned=0).estimate == pytest.approx(0.09)
    # an empty batch must not write the prior's mean of 0.5 into the estimate
    assert start.updated(num_accepted=0, num_appealed=5, num_overturned=0) == start
    with pytest.raises(ValueError, match="num_overturned"):
        start.updated(num_accepted=1, num_appealed=1, num_overturned=2)


def test_the_appealed_share_is_near_its_rate_and_always_the_same():
    appeals = Appeals(rate=0.1)
    chosen = [appeals.is_appealed(str(key)) for key in range(5000)]
    assert sum(chosen) / 5000 == pytest.approx(0.1, abs=0.02)  # standard error 0.0042
    assert chosen == [appeals.is_appealed(str(key)) for key in range(5000)]


def test_appeals_find_the_rate_of_a_simulated_verifier():
    # 1024 rollouts per update, half of them right, a quarter of those rejected, a perfect second opinion
    import random

    source = random.Random(0)
    appeals = Appeals(rate=0.1, estimate=0.5)
    for _ in range(80):
        missed = sum(source.random() < 0.25 for _ in range(512))
        overturned = sum(source.random() < 0.1 for _ in range(missed))
        appeals = appeals.updated(
            num_accepted=512 - missed, num_appealed=overturned + 50, num_overturned=overturned
        )
    assert appeals.estimate == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize("verifier", [MathVerifier(), NumericVerifier(), ExactVerifier()])
def test_nothing_worthless_is_accepted(verifier):
    tasks = [Task(id=str(n), prompt=f"What is {n} squared?", answer=str(n * n)) for n in range(3, 9)]
    attempts = worthless_attempts(tasks)
    verdicts = [verifier.verify(task, attempt) for task, attempt in attempts]
    assert len(attempts) > 100
    assert accepted(attempts, verdicts) == []


def test_a_verifier_with_a_master_key_is_found_out():
    tasks = [Task(id="a", prompt="?", answer="5")]
    attempts = worthless_attempts(tasks)
    verdicts = [Verdict(score=float(attempt.text == "Solution:")) for _, attempt in attempts]
    assert [text for _, text in accepted(attempts, verdicts)] == ["Solution:"]


def test_an_audit_shows_rejections_that_a_second_opinion_accepts():
    tasks = [Task(id=str(n), prompt="?", answer="0.5") for n in range(4)]
    texts = [r"\boxed{\frac{1}{2}}", r"\boxed{0.50}", r"\boxed{7}", r"\boxed{\sin 30^\circ}"]
    attempts = [(task, Attempt(text=text)) for task, text in zip(tasks, texts, strict=True)]
    first = [NumericVerifier().verify(*pair) for pair in attempts]
    rejected = [index for index, verdict in enumerate(first) if verdict.score == 0]
    assert rejected == [2, 3]
    pairs = [attempts[index] for index in rejected]
    second = [MathVerifier().verify(*pair) for pair in pairs]
    result = audit(2, pairs, [first[index] for index in rejected], second)
    assert (result.num_examined, result.overturned.count) == (2, 1)
    assert result.mismatches[0].task_id == "3"


def test_rejections_are_sampled_without_repetition():
    task = Task(id="a", prompt="?")
    attempts = [(task, Attempt(text=str(number % 5))) for number in range(100)]
    assert len(sample_rejections(attempts, 50)) == 5
    assert len(sample_rejections(attempts, 3)) == 3
    assert sample_rejections(attempts, 3) == sample_rejections(attempts, 3)
