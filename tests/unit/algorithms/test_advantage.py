import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from peira.algorithms.advantage import group_advantages, has_spread
from peira.errors import DataError
from tests.unit.algorithms.tensors import every

R3 = math.sqrt(3)


def advantages(rewards, judged=None, *, baseline="group_mean", scale="none", eps=0.0):
    rewards = torch.tensor(rewards, dtype=torch.float64)
    judged = every(rewards) if judged is None else torch.tensor(judged)
    return group_advantages(rewards, judged, baseline=baseline, scale=scale, eps=eps)


@pytest.mark.parametrize(
    ("rewards", "baseline", "scale", "expected"),
    [
        # mean 1/4; squares 9/16 + 3/16 = 3/4: population variance 3/16, sample variance 1/4
        ([1, 0, 0, 0], "group_mean", "population_std", [R3, -1 / R3, -1 / R3, -1 / R3]),
        ([1, 0, 0, 0], "group_mean", "sample_std", [1.5, -0.5, -0.5, -0.5]),
        ([1, 0, 0, 0], "group_mean", "none", [0.75, -0.25, -0.25, -0.25]),
        ([1, 0, 0, 0], "leave_one_out", "none", [1, -1 / 3, -1 / 3, -1 / 3]),
        # mean 1/2, squares 4 * 1/4 = 1: population std 1/2, sample std 1/sqrt(3)
        ([1, 1, 0, 0], "group_mean", "population_std", [1, 1, -1, -1]),
        ([1, 1, 0, 0], "group_mean", "sample_std", [R3 / 2, R3 / 2, -R3 / 2, -R3 / 2]),
        ([1, 1, 0, 0], "leave_one_out", "none", [2 / 3, 2 / 3, -2 / 3, -2 / 3]),
        # two rollouts: the better one gets +1 whatever the gap (population), 1/sqrt(2) with divisor 1
        ([0.3, 0.1], "group_mean", "population_std", [1, -1]),
        ([0.3, 0.1], "group_mean", "sample_std", [1 / math.sqrt(2), -1 / math.sqrt(2)]),
    ],
)
def test_groups_worked_by_hand(rewards, baseline, scale, expected):
    got = advantages([rewards], baseline=baseline, scale=scale)
    torch.testing.assert_close(got, torch.tensor([expected], dtype=torch.float64))


def test_eps_is_added_to_the_std():
    # std 1/2, eps 1/2: centred +-1/2 over 1
    assert advantages([[1, 1, 0, 0]], scale="population_std", eps=0.5).tolist() == [[0.5, 0.5, -0.5, -0.5]]


@pytest.mark.parametrize("scale", ["none", "population_std", "sample_std"])
@pytest.mark.parametrize("baseline", ["group_mean", "leave_one_out"])
@pytest.mark.parametrize(("reward", "group_size"), [(0.1, 7), (0.9, 12), (1.0, 4), (0.0, 2), (-3.7, 5)])
def test_equal_rewards_give_exact_zero(reward, group_size, baseline, scale):
    # 0.1 and 0.9 have no exact binary form; their float32 group means miss them by an ulp
    rewards = torch.full((1, group_size), reward)
    got = group_advantages(rewards, every(rewards), baseline=baseline, scale=scale, eps=0.0)
    assert torch.equal(got, torch.zeros(1, group_size))


def test_weighted_sums_that_round_differently_are_equal_rewards():
    # 0.1 + 0.2 = 0.30000000000000004 in float64; a std would blow that up to +-1
    assert torch.equal(
        advantages([[0.1 + 0.2, 0.3]], scale="population_std"), torch.zeros(1, 2, dtype=torch.float64)
    )


def test_an_unjudged_member_stays_out_of_the_mean_and_gets_nothing():
    # judged rewards 1 and 0: mean 1/2; leave-one-out doubles (n / (n - 1) = 2)
    judged = [[True, True, False]]
    assert advantages([[1.0, 0.0, math.nan]], judged).tolist() == [[0.5, -0.5, 0.0]]
    assert advantages([[1.0, 0.0, math.inf]], judged, baseline="leave_one_out").tolist() == [[1.0, -1.0, 0.0]]


@pytest.mark.parametrize("scale", ["none", "population_std", "sample_std"])
@pytest.mark.parametrize("baseline", ["group_mean", "leave_one_out"])
@pytest.mark.parametrize(
    ("rewards", "judged"),
    [
        ([[1.0]], [[True]]),
        ([[1.0]], [[False]]),
        ([[1.0, 0.0, 0.0]], [[False, True, False]]),
        ([[1.0, math.nan]], [[False, False]]),
    ],
)
def test_fewer_than_two_judged_members_rank_nothing(rewards, judged, baseline, scale):
    got = advantages(rewards, judged, baseline=baseline, scale=scale)
    assert torch.equal(got, torch.zeros_like(got))


def test_a_collapsed_group_leaves_its_neighbour_alone():
    got = advantages([[1, 1, 1, 1], [1, 0, 0, 0]], scale="sample_std")
    assert got.tolist() == [[0, 0, 0, 0], [1.5, -0.5, -0.5, -0.5]]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_judged_reward_that_is_not_a_number_is_refused_by_place(value):
    with pytest.raises(DataError, match=r"\[1, 0\].*expected a finite number"):
        advantages([[1.0, 0.0], [value, 0.0]])


def test_spread_looks_at_judged_rewards_only():
    rewards = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [math.nan, 1.0, 0.5]])
    judged = torch.tensor([[True, True, True], [False, True, True], [False, True, True]])
    assert has_spread(rewards, judged).tolist() == [True, False, True]


GROUPS = st.integers(2, 6).flatmap(
    lambda size: st.lists(
        st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, -2.0]), min_size=size, max_size=size),
        min_size=1,
        max_size=4,
    )
)
CONVENTIONS = st.tuples(
    st.sampled_from(["group_mean", "leave_one_out"]),
    st.sampled_from(["none", "population_std", "sample_std"]),
)


@settings(deadline=None, max_examples=60)
@given(GROUPS, CONVENTIONS, st.sampled_from([-8.0, 0.5, 3.0]))
def test_adding_a_constant_to_a_group_changes_nothing(groups, convention, shift):
    baseline, scale = convention
    plain = advantages(groups, baseline=baseline, scale=scale)
    moved = advantages([[r + shift for r in g] for g in groups], baseline=baseline, scale=scale)
    torch.testing.assert_close(plain, moved, rtol=1e-9, atol=1e-9)


@settings(deadline=None, max_examples=60)
@given(GROUPS, st.sampled_from(["population_std", "sample_std"]), st.sampled_from([0.125, 4.0]))
def test_a_scaled_advantage_does_not_know_the_reward_scale(groups, scale, factor):
    plain = advantages(groups, scale=scale)
    torch.testing.assert_close(plain, advantages([[r * factor for r in g] for g in groups], scale=scale))


@settings(deadline=None, max_examples=60)
@given(GROUPS, CONVENTIONS, st.randoms(use_true_random=False))
def test_permuting_members_or_groups_permutes_advantages(groups, convention, random):
    baseline, scale = convention
    members = list(range(len(groups[0])))
    order = list(range(len(groups)))
    random.shuffle(members)
    random.shuffle(order)
    plain = advantages(groups, baseline=baseline, scale=scale)
    shuffled = advantages([[groups[p][g] for g in members] for p in order], baseline=baseline, scale=scale)
    torch.testing.assert_close(shuffled, plain[order][:, members])


@settings(deadline=None, max_examples=60)
@given(GROUPS, CONVENTIONS)
def test_advantages_of_a_group_add_up_to_zero(groups, convention):
    total = advantages(groups, baseline=convention[0], scale=convention[1]).sum(dim=1)
    torch.testing.assert_close(total, torch.zeros_like(total), rtol=0, atol=1e-9)


def test_float32_agrees_with_float64():
    rewards = torch.rand(5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    exact = group_advantages(rewards, every(rewards), baseline="group_mean", scale="sample_std", eps=1e-6)
    rough = group_advantages(
        rewards.float(), every(rewards), baseline="group_mean", scale="sample_std", eps=1e-6
    )
    torch.testing.assert_close(rough.double(), exact, rtol=1e-5, atol=1e-6)
