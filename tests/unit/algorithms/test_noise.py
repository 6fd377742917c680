import math

import pytest
import torch

from peira.algorithms.advantage import group_advantages, plain_advantages
from peira.algorithms.collapse import staged_advantages
from peira.algorithms.family import StepContext
from peira.algorithms.noise import (
    backward_corrected,
    correct_backward,
    correct_forward,
    correction_audit,
    false_negative_rate,
    forward_corrected,
    informedness,
    smoothed,
    wilson_interval,
)
from peira.errors import ConfigError
from tests.unit.algorithms.tensors import every

FPR, FNR = 0.1, 0.2  # gain 0.7
OBSERVED = torch.tensor([[1, 0, 0, 1, 1, 0, 0, 0]], dtype=torch.float64)


def rates(like, positive=FPR, negative=FNR):
    return torch.full_like(like, positive), torch.full_like(like, negative)


def loo(rewards):
    return group_advantages(rewards, every(rewards), baseline="leave_one_out", scale="none", eps=0.0)


def zscore(rewards):
    return group_advantages(rewards, every(rewards), baseline="group_mean", scale="population_std", eps=0.0)


def test_corrected_rewards_by_hand():
    both = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    assert backward_corrected(both, *rates(both), min_gain=0.05)[0].tolist() == pytest.approx([-1 / 7, 9 / 7])
    assert forward_corrected(both, rates(both)[1])[0].tolist() == pytest.approx([-0.8, 0.2])


def test_backward_is_unbiased_and_forward_points_the_right_way():
    # given right: accepted with .8; given wrong: accepted with .1
    both = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    back = backward_corrected(both, *rates(both), min_gain=0.05)[0]
    ahead = forward_corrected(both, rates(both)[1])[0]
    right, wrong = (
        torch.tensor([0.2, 0.8], dtype=torch.float64),
        torch.tensor([0.9, 0.1], dtype=torch.float64),
    )
    assert [(right * back).sum().item(), (wrong * back).sum().item()] == pytest.approx([1.0, 0.0])
    assert [(right * ahead).sum().item(), (wrong * ahead).sum().item()] == pytest.approx([0.0, -0.7])
    variance = (right * back**2).sum() - 1, (wrong * back**2).sum()
    # rho (1 - rho) / gain^2
    assert [v.item() for v in variance] == pytest.approx([0.16 / 0.49, 0.09 / 0.49])


def test_one_group_under_each_correction():
    def values(a):
        return [a[0, 0].item(), a[0, 1].item()]

    back = backward_corrected(OBSERVED, *rates(OBSERVED), min_gain=0.05)
    ahead = forward_corrected(OBSERVED, rates(OBSERVED)[1])
    for rewards in (OBSERVED, back, ahead):  # a std removes any correction with equal rates
        assert values(zscore(rewards)) == pytest.approx([1.290994, -0.774597], abs=1e-6)
    assert values(loo(OBSERVED)) == pytest.approx([0.714286, -0.428571], abs=1e-6)
    assert values(loo(back)) == pytest.approx([1.020408, -0.612245], abs=1e-6)
    assert values(ahead) == pytest.approx([0.2, -0.8])
    torch.testing.assert_close(loo(back), loo(OBSERVED) / 0.7)


def test_the_audit_tells_a_rescale_from_a_correction():
    plain = loo(OBSERVED)
    back = loo(backward_corrected(OBSERVED, *rates(OBSERVED), min_gain=0.05))
    got = correction_audit(back, plain, every(plain))
    assert got["noise/cosine"] == pytest.approx(1.0)
    assert got["noise/gap_mean"] == pytest.approx(0.229592, abs=1e-6)
    assert got["noise/gap_max"] == pytest.approx(0.306122, abs=1e-6)
    got = correction_audit(forward_corrected(OBSERVED, rates(OBSERVED)[1]), plain, every(plain))
    assert got["noise/cosine"] == pytest.approx(0.751505, abs=1e-6)
    assert got["noise/gap_mean"] == pytest.approx(0.425)
    assert got["noise/gap_max"] == pytest.approx(0.514286, abs=1e-6)
    assert correction_audit(plain, plain, ~every(plain)) == {}
    assert "noise/cosine" not in correction_audit(plain * 0, plain, every(plain))


def test_rates_that_differ_within_a_group_survive_even_a_std():
    observed = torch.tensor([[1.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    positive = torch.zeros_like(observed)
    negative = torch.tensor([[0.05, 0.05, 0.45, 0.45]], dtype=torch.float64)
    back = backward_corrected(observed, positive, negative, min_gain=0.05)
    assert back[0].tolist() == pytest.approx([1.052632, 0, 1.818182, 0], abs=1e-6)
    assert loo(back)[0].tolist() == pytest.approx([0.446571, -0.956938, 1.467305, -0.956938], abs=1e-6)
    assert zscore(back)[0].tolist() == pytest.approx([0.436648, -0.935674, 1.434701, -0.935674], abs=1e-6)


def test_collapsed_groups_under_forward_correction_are_not_dead():
    outcomes = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    got = staged_advantages(
        outcomes,
        every(outcomes),
        estimate=plain_advantages,
        correct=lambda rewards, context: correct_forward(rewards, context, false_negative_rate=0.2),
    )
    assert got.flatten().tolist() == pytest.approx([-0.8, -0.8, 0.2, 0.2])


def test_rates_by_rollout_win_over_the_common_ones():
    rewards = torch.tensor([[1.0, 0.0]])
    options = {"false_positive_rate": 0.1, "false_negative_rate": 0.2, "min_gain": 0.05}
    common = correct_backward(rewards, StepContext(), **options)
    assert common[0].tolist() == pytest.approx([9 / 7, -1 / 7])
    own = StepContext(false_positive_rates=torch.zeros(1, 2), false_negative_rates=torch.tensor([[0.5, 0.0]]))
    assert correct_backward(rewards, own, **options)[0].tolist() == pytest.approx([2.0, 0.0])
    hopeless = StepContext(false_positive_rates=torch.full((1, 2), 0.9))
    with pytest.raises(ConfigError, match="less than 1"):
        correct_backward(rewards, hopeless, **options)


def test_the_gain_has_a_floor():
    rewards = torch.tensor([[1.0]])
    got = backward_corrected(rewards, *rates(rewards, 0.5, 0.49), min_gain=0.1)
    assert got.item() == pytest.approx(5.0)


# --- appeals
# ---------------------------------------------------------------------------------------------------


def test_appeals_estimate_the_false_negatives():
    # two of the appealed tenth recovered: 20 missed beside 60 accepted
    assert false_negative_rate(2, 60, appeal_rate=0.1) == pytest.approx(20.00001 / 80.00002)
    assert false_negative_rate(0, 60, appeal_rate=0.1) == pytest.approx(1e-5 / 60.00002)
    assert smoothed(0.10, false_negative_rate(2, 60, appeal_rate=0.1), decay=0.9) == pytest.approx(0.115)


def test_an_empty_batch_teaches_nothing():
    assert false_negative_rate(0, 0, appeal_rate=0.1) is None
    assert smoothed(0.1, None, decay=0.9) == 0.1
    assert smoothed(None, 0.3, decay=0.9) == 0.3
    assert smoothed(None, None, decay=0.9) is None


def test_appeals_land_near_the_truth():
    # 50 updates of 1,024 rollouts, half right, 20 % of those rejected, one rejection in ten appealed
    generator = torch.Generator().manual_seed(1)
    average = None
    for _ in range(50):
        right = torch.rand(1024, generator=generator) < 0.5
        accepted = right & (torch.rand(1024, generator=generator) >= 0.2)
        appealed = ~accepted & (torch.rand(1024, generator=generator) < 0.1)
        found = false_negative_rate(int((appealed & right).sum()), int(accepted.sum()), appeal_rate=0.1)
        average = smoothed(average, found, decay=0.9)
    assert average == pytest.approx(0.2, abs=0.03)


# --- Youden's J
# --------------------------------------------------------------------------------------------------


def test_wilson_interval_by_hand():
    # 5 of 10 at 95 %: z = 1.959964; (.5 + .192073) / 1.384146 = .5; half = z sqrt(.025 + .0096036) / 1.384146
    low, high = wilson_interval(5, 10, confidence=0.95)
    assert (low, high) == (pytest.approx(0.236593, abs=1e-6), pytest.approx(0.763407, abs=1e-6))
    assert wilson_interval(0, 10, confidence=0.95)[0] == 0.0
    assert wilson_interval(10, 10, confidence=0.95)[1] == 1.0
    assert wilson_interval(0, 0, confidence=0.95) == (0.0, 1.0)


def test_informedness_of_an_audit():
    # 0 of 448 wrong answers accepted, 52 of 52 + 200 right ones rejected
    estimate, low, high = informedness(
        false_positives=0, wrong=448, false_negatives=52, right=252, confidence=0.95
    )
    assert estimate == pytest.approx(1 - 52 / 252)
    assert low < estimate < high <= 1.0
    fp, fn = wilson_interval(0, 448, confidence=0.95), wilson_interval(52, 252, confidence=0.95)
    assert low == pytest.approx(estimate - math.hypot(fp[1] - 0, fn[1] - 52 / 252))


def test_informedness_without_an_audit_says_nothing():
    estimate, low, high = informedness(
        false_positives=0, wrong=0, false_negatives=0, right=0, confidence=0.95
    )
    assert estimate == 0.0
    assert low < -0.7
    assert high > 0.7


def test_the_interval_covers_the_truth_as_often_as_it_says():
    # exact coverage over both binomials: n = 40 and 40, true rates .1 and .3, J = .6
    def chance(k, p):
        return math.comb(40, k) * p**k * (1 - p) ** (40 - k)

    covered = 0.0
    for a in range(41):
        for b in range(41):
            _, low, high = informedness(
                false_positives=a, wrong=40, false_negatives=b, right=40, confidence=0.95
            )
            if low <= 0.6 <= high:
                covered += chance(a, 0.1) * chance(b, 0.3)
    assert 0.93 < covered < 0.98
