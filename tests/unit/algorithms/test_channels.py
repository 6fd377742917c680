import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from peira.algorithms.advantage import whiten
from peira.algorithms.combine import channel_advantages, conditioned
from peira.algorithms.family import StepContext
from peira.errors import ConfigError
from tests.unit.algorithms.tensors import every

R2 = math.sqrt(2)


def combined(*channels, weights=None, judged=None, scale="sample_std", conditions=()):
    """channels: one [P][G] list each."""
    stacked = torch.stack([torch.tensor(c, dtype=torch.float64) for c in channels], dim=2)
    rewards = stacked.nansum(dim=2)
    judged = every(rewards) if judged is None else torch.tensor(judged)
    return channel_advantages(
        rewards,
        judged,
        weights=weights or (1.0,) * len(channels),
        scale=scale,
        eps=0.0,
        conditions=conditions,
        context=StepContext(channels=stacked),
    )


def test_one_point_and_two_points_stay_apart():
    assert combined([[0, 1]], [[0, 0]])[0].tolist() == pytest.approx([-1 / R2, 1 / R2])
    assert combined([[0, 1]], [[0, 1]])[0].tolist() == pytest.approx([-R2, R2])


def test_whitening_keeps_them_apart_only_when_it_sees_many_groups():
    s = combined([[0, 1], [0, 1]], [[0, 0], [0, 1]])
    together = whiten(s, every(s), over="rollouts", eps=0.0, hold_dead=True)
    assert together.flatten().tolist() == pytest.approx([-0.5477, 0.5477, -1.0954, 1.0954], abs=1e-4)
    alone = whiten(s[1:], every(s[1:]), over="rollouts", eps=0.0, hold_dead=True)
    assert alone[0].tolist() == pytest.approx([-1 / R2, 1 / R2])


def test_channels_that_add_up_to_a_constant_cancel_unless_weights_differ():
    hard, easy = [[1, 1, 0]], [[0, 0, 1]]
    assert combined(hard, easy)[0].tolist() == pytest.approx([0.0, 0.0, 0.0])
    got = combined(hard, easy, weights=(1.0, 0.5))[0]
    assert got.tolist() == pytest.approx([0.2887, 0.2887, -0.5774], abs=1e-4)


def test_two_groups_of_four():
    got = combined([[1, 1, 0, 0], [0, 0, 0, 0]], [[0, 1, 0, 1], [1, 0, 0, 0]])
    assert got.flatten().tolist() == pytest.approx([0, 1.7321, -1.7321, 0, 1.5, -0.5, -0.5, -0.5], abs=1e-4)


def test_a_group_flat_in_every_channel_stays_exactly_zero():
    s = combined([[1, 0], [1, 1]], [[0, 1], [0.3, 0.3]], weights=(1.0, 0.5))
    white = whiten(s, every(s), over="rollouts", eps=0.0, hold_dead=True)
    assert white[1].tolist() == [0.0, 0.0]


def test_an_easy_reward_counts_only_where_the_hard_one_is_met():
    channels = torch.tensor([[[1.0, 1.0], [0.0, 1.0], [math.nan, math.nan]]])  # [1, 3, (hard, easy)]
    got = conditioned(channels, ((1, 0, 1.0),))
    assert got[0, :, 1].tolist()[:2] == [1.0, 0.0]
    assert channels[0, 1, 1].item() == 1.0  # the given one is left alone


def test_a_channel_without_a_verdict_adds_nothing_and_is_left_out_of_its_statistics():
    got = combined([[1, 0, 0]], [[1, 0, math.nan]])
    # channel 1: mean 1/3, sample variance 1/3: (1.1547, -.57735, -.57735); channel 2 over two: +-.7071
    expected = [1.154701 + 0.707107, -0.577350 - 0.707107, -0.577350]
    assert got[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_an_unjudged_rollout_gets_nothing():
    got = combined([[1, 0, 1]], [[1, 0, 1]], judged=[[True, True, False]])
    assert got[0].tolist() == pytest.approx([R2, -R2, 0.0])


def test_a_shadow_channel_is_not_trained_on():
    assert torch.equal(combined([[1, 0]], [[0, 1]], weights=(1.0, 0.0)), combined([[1, 0]]))


def test_affine_changes_of_a_channel_change_nothing():
    first = combined([[1, 0, 0.5]], [[0, 1, 1]])
    torch.testing.assert_close(first, combined([[7, 3, 5]], [[-3, 3, 3]]))


SCORES = st.lists(
    st.lists(st.sampled_from([0.0, 0.5, 1.0, math.nan]), min_size=3, max_size=3), min_size=2, max_size=4
)


@settings(deadline=None, max_examples=40)
@given(SCORES, SCORES, st.permutations([0, 1, 2]))
def test_permuting_members_and_groups_permutes_the_sum(first, second, members):
    size = min(len(first), len(second))
    first, second = first[:size], second[:size]
    plain = combined(first, second, weights=(1.0, 0.5))
    order = list(reversed(range(size)))
    moved = combined(
        [[first[p][g] for g in members] for p in order],
        [[second[p][g] for g in members] for p in order],
        weights=(1.0, 0.5),
    )
    torch.testing.assert_close(moved, plain[order][:, members])
    assert plain.isfinite().all()


def test_missing_or_miscounted_channels_are_named():
    rewards = torch.zeros(1, 2)
    with pytest.raises(ConfigError, match="channels"):
        channel_advantages(rewards, every(rewards), weights=(1.0,), scale="sample_std", eps=0.0)
    with pytest.raises(ConfigError, match="2 channel weights for 1"):
        combined([[1, 0]], weights=(1.0, 1.0))
