import math

import pytest
import torch

from peira.algorithms.credit import step_advantages, token_credit

# response 1: steps worth 1 and 0 ending at tokens 1 and 3; response 2: one step worth 1 ending at token 2
REWARDS = torch.tensor([[1.0, 0.0], [1.0, math.nan]], dtype=torch.float64)
STEPS = torch.tensor([[True, True], [True, False]])
ENDS = torch.tensor([[1, 3], [2, 0]])
ONE_GROUP = torch.tensor([0, 0])
MASK = torch.tensor([[True, True, True, True], [True, True, True, False]])


def test_steps_of_a_group_are_standardised_together():
    # mean 2/3, population std sqrt(2)/3: .7071, -1.4142, .7071
    got = step_advantages(REWARDS, STEPS, ONE_GROUP, scale="population_std", eps=0.0)
    r = math.sqrt(0.5)
    torch.testing.assert_close(got, torch.tensor([[r, -2 * r], [r, 0.0]], dtype=torch.float64))
    got = step_advantages(REWARDS, STEPS, ONE_GROUP, scale="none", eps=0.0)
    torch.testing.assert_close(got, torch.tensor([[1 / 3, -2 / 3], [1 / 3, 0.0]], dtype=torch.float64))
    got = step_advantages(REWARDS, STEPS, ONE_GROUP, scale="sample_std", eps=0.0)
    q = math.sqrt(1 / 3)
    torch.testing.assert_close(got, torch.tensor([[q, -2 * q], [q, 0.0]], dtype=torch.float64))


def test_a_token_gets_all_steps_that_end_at_it_or_later():
    values = step_advantages(REWARDS, STEPS, ONE_GROUP, scale="population_std", eps=0.0)
    got = token_credit(values, ENDS, STEPS, MASK, reach="to_go")
    r = math.sqrt(0.5)
    assert got[0].tolist() == pytest.approx([-r, -r, -2 * r, -2 * r])
    assert got[1].tolist() == pytest.approx([r, r, r, 0.0])


def test_a_token_gets_its_own_step_only():
    values = torch.tensor([[3.0, 5.0], [7.0, math.nan]])
    got = token_credit(values, ENDS, STEPS, MASK, reach="own")
    assert got.tolist() == [[3.0, 3.0, 5.0, 5.0], [7.0, 7.0, 7.0, 0.0]]


def test_groups_do_not_mix_and_flat_groups_get_exact_zero():
    rewards = torch.tensor([[0.1, 0.1], [0.1, 0.1], [1.0, 0.0]])
    got = step_advantages(
        rewards,
        torch.ones(3, 2, dtype=torch.bool),
        torch.tensor([4, 4, 9]),
        scale="population_std",
        eps=0.0,
    )
    assert got.tolist() == [[0.0, 0.0], [0.0, 0.0], [1.0, -1.0]]


def test_a_group_with_a_single_step_compares_nothing():
    got = step_advantages(
        torch.tensor([[1.0]]), torch.tensor([[True]]), torch.tensor([0]), scale="sample_std", eps=0.0
    )
    assert got.tolist() == [[0.0]]


def test_rows_without_steps_get_no_credit():
    none = torch.zeros(2, 0)
    for reach in ("to_go", "own"):
        got = token_credit(none, none.long(), none.bool(), MASK, reach=reach)
        assert torch.equal(got, torch.zeros(2, 4))
