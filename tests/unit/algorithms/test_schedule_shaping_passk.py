import math
from math import comb

import pytest

from peira.algorithms.passk import pass_at_k
from peira.algorithms.schedule import learning_rate
from peira.algorithms.shaping import overlong_penalty
from peira.errors import DataError


@pytest.mark.parametrize(
    ("num_tokens", "expected"),
    [(0, 0.0), (16384, 0.0), (17408, -0.25), (18432, -0.5), (20480, -1.0), (30000, -1.0)],
)
def test_the_overlong_ladder_of_dapo(num_tokens, expected):
    assert overlong_penalty(num_tokens, max_tokens=20480, buffer_tokens=4096, penalty=1.0) == expected


def test_no_buffer_means_no_overlong_penalty():
    assert overlong_penalty(100, max_tokens=100, buffer_tokens=0, penalty=1.0) == 0.0


def test_the_overlong_penalty_scales():
    assert overlong_penalty(75, max_tokens=100, buffer_tokens=50, penalty=0.4) == pytest.approx(-0.2)


def rates(schedule, *, warmup=0, total=5, floor=0.0):
    return [
        learning_rate(
            step, peak=1.0, warmup_steps=warmup, total_steps=total, schedule=schedule, min_fraction=floor
        )
        for step in range(total)
    ]


def test_constant_schedule_stays_at_the_peak():
    assert rates("constant") == [1.0] * 5


def test_warm_up_rises_to_the_peak_without_a_wasted_step():
    # two steps of warm-up: 1/3, 2/3, then the peak
    assert rates("constant", warmup=2) == pytest.approx([1 / 3, 2 / 3, 1, 1, 1])


def test_linear_schedule_ends_at_its_floor_on_the_last_step():
    assert rates("linear") == pytest.approx([1, 0.75, 0.5, 0.25, 0])
    assert rates("linear", warmup=1, floor=0.1) == pytest.approx([0.5, 1, 0.7, 0.4, 0.1])


def test_cosine_schedule_passes_half_way_at_half_time():
    # (1 + cos(pi x)) / 2 at x = 0, 1/4, 1/2, 3/4, 1
    r = math.sqrt(0.5)
    assert rates("cosine") == pytest.approx([1, (1 + r) / 2, 0.5, (1 - r) / 2, 0])
    assert rates("cosine", floor=0.5)[-1] == pytest.approx(0.5)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize(("warmup", "total"), [(0, 1), (1, 1), (5, 3), (2, 3)])
def test_short_runs_have_finite_positive_first_rates(schedule, warmup, total):
    assert all(0 <= rate <= 1 for rate in rates(schedule, warmup=warmup, total=total))
    assert rates(schedule, warmup=warmup, total=total)[0] > 0


def test_steps_beyond_the_plan_stay_at_the_floor():
    late = learning_rate(50, peak=2.0, warmup_steps=0, total_steps=5, schedule="cosine", min_fraction=0.25)
    assert late == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (10, 3, 1, 0.3),
        (10, 3, 5, 1 - 21 / 252),
        (10, 5, 5, 0.996032),
        (10, 6, 5, 1.0),
        (10, 0, 5, 0.0),
        (16, 1, 8, 0.5),
        (4, 1, 2, 0.5),
        (200, 3, 100, 0.876884),
    ],
)
def test_pass_at_k_by_hand(n, c, k, expected):
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("n", [1, 2, 7, 64, 1024])
def test_the_product_equals_the_binomials(n):
    for c in {0, 1, n // 3, n // 2, n - 1, n}:
        for k in {1, 2, n // 2, n - 1, n} - {0}:
            if k <= n:
                exact = 1 - comb(n - c, k) / comb(n, k)
                assert pass_at_k(n, c, k) == pytest.approx(exact, abs=1e-12)


def test_pass_at_k_is_unbiased_for_every_k():
    # c ~ Binomial(10, 0.3): the mean over c must be 1 - 0.7^k
    n, p = 10, 0.3
    for k in range(1, n + 1):
        mean = sum(comb(n, c) * p**c * (1 - p) ** (n - c) * pass_at_k(n, c, k) for c in range(n + 1))
        assert mean == pytest.approx(1 - (1 - p) ** k, abs=1e-12)


def test_pass_at_k_never_falls_with_k_or_with_another_right_answer():
    table = [[pass_at_k(12, c, k) for k in range(1, 13)] for c in range(13)]
    for row in table:
        assert row == sorted(row)
    for column in zip(*table, strict=True):
        assert list(column) == sorted(column)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 5), (4, 1, 0), (4, 5, 2), (4, -1, 2), (0, 0, 1)])
def test_impossible_counts_are_refused(n, c, k):
    with pytest.raises(DataError, match="pass_at_k"):
        pass_at_k(n, c, k)
