import math
from itertools import combinations

import pytest
import torch

from peira.algorithms.advantage import (
    maximum_likelihood_advantages,
    pass_at_k_advantages,
    plain_advantages,
    sign_advantages,
)
from peira.errors import DataError
from tests.unit.algorithms.tensors import every


def test_maximum_likelihood_divides_by_the_success_rate():
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [1.0] * 4, [0.0] * 4])
    got = maximum_likelihood_advantages(rewards, every(rewards))
    assert got.tolist() == [[3.0, -1.0, -1.0, -1.0], [1.0, 1.0, -1.0, -1.0], [0.0] * 4, [0.0] * 4]


def test_maximum_likelihood_leaves_the_unjudged_out_and_refuses_negative_rewards():
    got = maximum_likelihood_advantages(
        torch.tensor([[1.0, 0.0, math.nan]]), torch.tensor([[True, True, False]])
    )
    assert got.tolist() == [[1.0, -1.0, 0.0]]
    bad = torch.tensor([[-0.5, 1.0]])
    with pytest.raises(DataError, match=">= 0"):
        maximum_likelihood_advantages(bad, every(bad))


def test_sign_and_plain_look_at_no_sibling():
    rewards, judged = torch.tensor([[1.0, 0.25, math.nan]]), torch.tensor([[True, True, False]])
    assert sign_advantages(rewards, judged).tolist() == [[1.0, -0.5, 0.0]]
    assert plain_advantages(rewards, judged).tolist() == [[1.0, 0.25, 0.0]]
    with pytest.raises(DataError, match=r"\[0, 1\]"):
        sign_advantages(torch.tensor([[1.5]]), torch.tensor([[True]]))


def slow_pass_at_k(rewards, k):
    """Leave-one-out and analytic forms from the subsets themselves."""
    n = len(rewards)

    def success(members):
        found = [max(rewards[i] for i in s) for s in combinations(members, k)]
        return sum(found) / len(found)

    everyone = list(range(n))
    unbiased, analytic = [], []
    for i in everyone:
        others = [j for j in everyone if j != i]
        with_i = [max(rewards[i], *(rewards[j] for j in s), 0) for s in combinations(others, k - 1)]
        mine = sum(with_i) / len(with_i)
        unbiased.append(k * (mine - success(others)))
        whole = success(everyone)
        analytic.append((mine - whole) / math.sqrt(whole * (1 - whole)) if 0 < whole < 1 else 0.0)
    return unbiased, analytic


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("rewards", [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 1, 0, 1, 1, 0]])
def test_pass_at_k_advantages_equal_those_of_all_subsets(rewards, k):
    unbiased, analytic = slow_pass_at_k(rewards, k)
    table = torch.tensor([rewards], dtype=torch.float64)
    got = pass_at_k_advantages(table, every(table), k=k, baseline="leave_one_out", scale="none", eps=0.0)
    alive = len(rewards) - sum(rewards) >= k
    assert got[0].tolist() == pytest.approx(unbiased if alive else [0.0] * len(rewards))
    got = pass_at_k_advantages(
        table, every(table), k=k, baseline="group_mean", scale="population_std", eps=0.0
    )
    assert got[0].tolist() == pytest.approx(analytic)


def test_one_attempt_is_leave_one_out():
    table = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    got = pass_at_k_advantages(table, every(table), k=1, baseline="leave_one_out", scale="none", eps=0.0)
    assert got[0].tolist() == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3])


@pytest.mark.parametrize("rewards", [[0.0] * 4, [1.0] * 4, [1.0, 1.0, 1.0, 0.0]])
def test_a_group_that_cannot_fail_or_cannot_pass_has_no_signal(rewards):
    # with one wrong of four every pair succeeds
    table = torch.tensor([rewards])
    got = pass_at_k_advantages(table, every(table), k=2, baseline="group_mean", scale="none", eps=0.0)
    assert got.tolist() == [[0.0] * 4]


def test_pass_at_k_with_too_few_judged_or_graded_rewards():
    table, judged = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[True, True, False]])
    got = pass_at_k_advantages(table, judged, k=2, baseline="leave_one_out", scale="none", eps=0.0)
    assert got.tolist() == [[0.0, 0.0, 0.0]]
    graded = torch.tensor([[0.5, 0.0, 1.0]])
    with pytest.raises(DataError, match="0 or 1"):
        pass_at_k_advantages(graded, every(graded), k=2, baseline="leave_one_out", scale="none", eps=0.0)
    empty = torch.zeros(0, 4)
    assert pass_at_k_advantages(
        empty, every(empty), k=2, baseline="leave_one_out", scale="none", eps=0.0
    ).shape == (0, 4)
