import math
from functools import partial

import pytest
import torch

from peira.algorithms.advantage import group_advantages, whiten
from peira.algorithms.collapse import (
    avspo_constant,
    avspo_observe,
    avspo_repair,
    collapse_rate,
    flat_groups,
    num_virtual,
    sign_repair,
    staged_advantages,
    virtual_rewards,
    whitened,
    zero_variance_advantages,
)
from peira.algorithms.family import StepContext
from peira.errors import ConfigError, DataError
from tests.unit.algorithms.tensors import every

SETTINGS = {
    "exponent": 0.5,
    "anchor": 0.1,
    "initial_trigger": 0.5,
    "scope": "step",
    "window_steps": 3,
    "decay": 0.9,
    "sample_std": False,
    "eps": 0.0,
}
ALIVE = [[1.0, 0.0, 0.0, 0.0]]


def repaired(outcomes, *, judged=None, state=None, **options):
    """AVSPO on top of plain scaled advantages."""
    outcomes = torch.tensor(outcomes, dtype=torch.float64)
    judged = every(outcomes) if judged is None else torch.tensor(judged)
    plain = group_advantages(outcomes, judged, baseline="group_mean", scale="population_std", eps=0.0)
    context = StepContext(outcomes=outcomes, state=state or {})
    return avspo_repair(plain, judged, context, **(SETTINGS | options))


def test_collapse_rate_counts_groups_that_could_differ():
    outcomes = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    assert collapse_rate(outcomes, every(outcomes)) == 0.75
    judged = torch.tensor([[True, True], [True, True], [True, False], [False, False]])
    assert collapse_rate(outcomes, judged) == 0.5
    assert flat_groups(outcomes, judged).tolist() == [True, False, False, False]
    assert collapse_rate(outcomes, ~every(outcomes)) == 0.0


def test_ladders_of_imagined_rewards():
    assert virtual_rewards(0.0, 4, anchor=0.1) == pytest.approx([0.1, 0.075, 0.05, 0.025])
    assert virtual_rewards(1.0, 4, anchor=0.1) == pytest.approx([0.8, 0.6, 0.4, 0.2])
    assert virtual_rewards(0.0, 7, anchor=0.1) == pytest.approx([0.1 * k / 7 for k in range(7, 0, -1)])


@pytest.mark.parametrize(
    ("size", "rate", "count"),
    [(8, 0.25, 4), (8, 0.5, 6), (8, 1.0, 8), (4, 0.75, 4), (4, 0.51, 3), (8, 0.0, 1)],
)
def test_the_number_of_imagined_rewards_grows_with_the_collapse_rate(size, rate, count):
    assert num_virtual(size, rate, exponent=0.5) == count


@pytest.mark.parametrize(
    ("size", "rate", "expected"),
    [
        (4, 0.75, 0.845154),
        (4, 0.5625, 0.762001),
        (8, 0.6, 0.771845),
        (8, 1.0, 0.811503),
        (8, 0.5625, 0.727607),
    ],
)
def test_the_constant_of_a_repaired_group(size, rate, expected):
    assert avspo_constant(size, num_virtual(size, rate, exponent=0.5)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("observed", [0.0, 1.0, 0.3])
def test_closed_form_and_statistics_agree_for_every_size(observed):
    for size in range(2, 17):
        for count in range(1, size + 1):
            both = [observed] * size + virtual_rewards(observed, count, anchor=0.1)
            mean = sum(both) / len(both)
            std = math.sqrt(sum((r - mean) ** 2 for r in both) / len(both))
            constant = avspo_constant(size, count)
            assert abs(observed - mean) / std == pytest.approx(constant, abs=1e-9)
            assert constant <= math.sqrt(count / size) + 1e-12


def test_all_wrong_and_all_right_groups_are_pushed_by_the_same_constant():
    # three of four groups collapsed: rate .75, K = 4
    got = repaired([[0.0] * 4, [1.0] * 4, [0.0] * 4, *ALIVE])
    c = 0.845154
    assert got[0].tolist() == pytest.approx([-c] * 4, abs=1e-6)
    assert got[1].tolist() == pytest.approx([c] * 4, abs=1e-6)
    assert got[3].tolist() == pytest.approx([1.732051] + [-0.577350] * 3, abs=1e-6)


def test_divisor_and_eps_are_those_of_the_group_std():
    got = repaired([[0.0] * 4, [0.0] * 4, [0.0] * 4, *ALIVE], sample_std=True, eps=1e-4)
    assert got[0].tolist() == pytest.approx([-0.788574] * 4, abs=1e-6)


def test_the_trigger_must_be_exceeded():
    got = repaired([[0.0] * 4, *ALIVE])  # rate 1/2 is not above 1/2
    assert got[0].tolist() == [0.0] * 4
    assert repaired([[0.0] * 4, *ALIVE], state={"avspo/trigger": 0.49})[0, 0] < 0


def test_the_anchor_does_not_matter_without_eps():
    groups = [[0.0] * 4, [0.0] * 4]
    torch.testing.assert_close(repaired(groups, anchor=0.1), repaired(groups, anchor=10.0))


def test_unjudged_members_are_neither_counted_nor_pushed():
    got = repaired([[0.0, 0.0, math.nan], [0.0, 0.0, 0.0]], judged=[[True, True, False], [True, True, True]])
    # two members, K = 2: c = .904534; three members, K = 3
    assert got[0].tolist() == pytest.approx([-0.904534, -0.904534, 0.0], abs=1e-6)
    assert got[1].tolist() == pytest.approx([-avspo_constant(3, 3)] * 3)


def test_repair_wants_outcomes_between_wrong_and_right():
    with pytest.raises(DataError, match=r"values in \[0, 1\]"):
        repaired([[-1.0, -1.0]])
    plain = torch.zeros(1, 2)
    with pytest.raises(ConfigError, match="outcomes"):
        avspo_repair(plain, every(plain), StepContext(), **SETTINGS)


# --- the adaptive trigger ----------------------------------------------------------------------------------


def observed(outcomes, state, **options):
    outcomes = torch.tensor(outcomes)
    settings = {
        "rate_step": 0.01,
        "initial_trigger": 0.5,
        "lowest_trigger": 0.1,
        "highest_trigger": 0.9,
        "scope": "step",
        "window_steps": 3,
        "decay": 0.9,
    }
    context = StepContext(outcomes=outcomes, state=state)
    return avspo_observe(outcomes, every(outcomes), context=context, **(settings | options))


QUARTER_ALIVE = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [1.0, 1.0]]  # rate 3/4, mean 5/8


@pytest.mark.parametrize(("before", "expected"), [(0.5, 0.5025), (0.7, 0.4975), (0.625, 0.5)])
def test_the_trigger_follows_progress(before, expected):
    state = {"avspo/trigger": 0.5, "avspo/progress": before}
    got = observed(QUARTER_ALIVE, state)
    assert got["avspo/trigger"] == pytest.approx(expected)
    assert got["avspo/progress"] == 0.625


def test_the_first_step_has_no_progress_to_compare():
    assert observed(QUARTER_ALIVE, {})["avspo/trigger"] == 0.5


def test_a_step_without_a_verdict_moves_nothing():
    outcomes = torch.full((1, 2), math.nan)
    context = StepContext(outcomes=outcomes, state={"avspo/trigger": 0.4, "avspo/progress": 0.3})
    got = avspo_observe(
        outcomes,
        ~every(outcomes),
        context=context,
        rate_step=0.5,
        initial_trigger=0.5,
        lowest_trigger=0.1,
        highest_trigger=0.9,
        scope="step",
        window_steps=1,
        decay=0.9,
    )
    assert (got["avspo/trigger"], got["avspo/progress"]) == (0.4, 0.3)


def test_the_trigger_stays_within_its_bounds():
    state = {"avspo/trigger": 0.895, "avspo/progress": 0.0}
    assert observed([[1.0, 1.0]], state, rate_step=1.0)["avspo/trigger"] == 0.9


def test_a_window_and_an_average_look_back():
    first = observed([[0.0, 0.0], [0.0, 0.0]], {})  # rate 1
    second = observed([[1.0, 0.0], [0.0, 1.0]], first)  # rate 0
    assert [second[f"avspo/rate_{i}"] for i in range(2)] == [0.0, 1.0]
    # third step, rate 1/2: window of three: (1/2 + 0 + 1) / 3; not above the trigger
    groups = [[0.0, 0.0], [1.0, 0.0]]
    quiet = second | {"avspo/trigger": 0.5}
    assert repaired(groups, state=quiet, scope="window")[0, 0] == 0
    assert repaired(groups, state=quiet | {"avspo/trigger": 0.49}, scope="window")[0, 0] < 0
    # a running average that stood at .9: .9 * .9 + .1 * .5 = .86
    assert repaired(groups, state={"avspo/average": 0.9, "avspo/trigger": 0.85}, scope="average")[0, 0] < 0
    assert repaired(groups, state={"avspo/average": 0.9, "avspo/trigger": 0.87}, scope="average")[0, 0] == 0
    third = observed(groups, second)
    assert [third[f"avspo/rate_{i}"] for i in range(2)] == [0.5, 0.0]
    assert "avspo/rate_2" not in third


# --- the order
# ------------------------------------------------------------------------------------------------


def test_whitening_after_a_repair_would_reinforce_wrong_answers():
    # the example that fixes the order: three all-wrong groups pushed down, one mixed group
    pushed = torch.tensor([[-0.845154] * 4] * 3 + [[1.732051, -0.577350, -0.577350, -0.577350]])
    mean, std = pushed.mean(), pushed.std(correction=0)
    assert mean.item() == pytest.approx(-0.633866, abs=1e-6)
    assert ((pushed - mean) / std)[3, 1].item() == pytest.approx(0.0912, abs=1e-4)


def test_the_stages_whiten_before_they_repair():
    outcomes = torch.tensor([[0.0] * 4] * 3 + ALIVE)
    got = staged_advantages(
        outcomes,
        every(outcomes),
        estimate=partial(group_advantages, baseline="group_mean", scale="population_std", eps=0.0),
        whitening=partial(whitened, over="rollouts", eps=0.0, hold_dead=True),
        repair=partial(avspo_repair, **SETTINGS),
        context=StepContext(outcomes=outcomes),
    )
    assert got[0].tolist() == pytest.approx([-0.845154] * 4, abs=1e-6)
    # mean 0; squares 3 + 3 * 1/3 = 4 over n - 1 = 15
    scale = math.sqrt(4 / 15)
    assert got[3].tolist() == pytest.approx([1.732051 / scale] + [-0.577350 / scale] * 3, abs=1e-4)
    assert (got[3, 1:] < 0).all()


def test_repair_looks_at_outcomes_and_not_at_shaped_rewards():
    # everybody wrong, everybody with a format bonus: the group must be pushed down
    outcomes = torch.zeros(1, 4)
    rewards = outcomes + 0.1
    got = staged_advantages(
        rewards,
        every(rewards),
        estimate=partial(group_advantages, baseline="group_mean", scale="population_std", eps=0.0),
        repair=partial(avspo_repair, **SETTINGS),
        context=StepContext(outcomes=outcomes),
    )
    assert (got < 0).all()


def test_a_repaired_group_moves_against_the_mean_of_its_scores():
    # imagined rewards reach no loss: the gradient is -c times the mean score, and the shape stays [P, G]
    logprobs = torch.tensor([[-1.0, -2.0, -0.5, -0.1]], requires_grad=True)
    advantages = repaired([[0.0] * 4])
    assert advantages.shape == (1, 4)
    (-(advantages * logprobs).mean()).backward()
    torch.testing.assert_close(logprobs.grad, torch.full((1, 4), 0.845154 / 4))


def test_the_sign_control_pushes_collapsed_groups_only():
    outcomes = torch.tensor([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0]])
    plain = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.5, -0.5]])
    got = sign_repair(plain, every(plain), StepContext(outcomes=outcomes), magnitude=0.3)
    assert got.tolist() == [pytest.approx([-0.3, -0.3]), pytest.approx([0.3, 0.3]), [0.5, -0.5]]


def test_zero_variance_credit_from_entropy():
    # H = (.2, 1.0), coefficient .1: right (.02, .1), wrong (-.08, 0)
    entropy = torch.tensor([[0.2, 1.0, math.nan], [0.2, 1.0, math.nan]], requires_grad=True)
    mask = torch.tensor([[True, True, False]] * 2)
    got = zero_variance_advantages(entropy, mask, torch.tensor([True, False]), coefficient=0.1)
    torch.testing.assert_close(got, torch.tensor([[0.02, 0.1, 0.0], [-0.08, 0.0, 0.0]]))
    assert not got.requires_grad


# --- whitening
# --------------------------------------------------------------------------------------------------


def test_whitening_over_tokens_lets_long_rollouts_pull_and_would_push_flat_groups():
    # groups (1, 0) of 30 and 10 tokens, and a flat one of 20 and 20: S = (.7071, -.7071, 0, 0), 80 tokens
    s = torch.tensor([[1.0, -1.0], [0.0, 0.0]], dtype=torch.float64) / math.sqrt(2)
    lengths = torch.tensor([[30, 10], [20, 20]])
    leak = whiten(s, every(s), over="tokens", eps=0.0, hold_dead=False, num_tokens=lengths)
    # token mean 20 * .7071 / 80 = .1768; token variance (40 * .5 - 80 * .03125) / 79
    std = math.sqrt((40 * 0.5 - 80 * 0.03125) / 79)
    expected = [(0.707107 - 0.176777) / std, (-0.707107 - 0.176777) / std, -0.176777 / std, -0.176777 / std]
    assert leak.flatten().tolist() == pytest.approx(expected, abs=1e-5)
    held = whiten(s, every(s), over="tokens", eps=0.0, hold_dead=True, num_tokens=lengths)
    assert held[1].tolist() == [0.0, 0.0]
    assert held[0].tolist() == leak[0].tolist()


def test_whitening_over_rollouts_keeps_flat_groups_at_zero():
    s = torch.tensor([[0.7071, -0.7071], [0.0, 0.0]])
    got = whiten(s, every(s), over="rollouts", eps=0.0, hold_dead=True)
    # mean 0, variance 1 / 3
    assert got.flatten().tolist() == pytest.approx([1.2247, -1.2247, 0.0, 0.0], abs=1e-4)
    assert got[1].tolist() == [0.0, 0.0]


def test_a_global_baseline_gives_flat_groups_a_signal():
    # batch {all 0, all 1} of equal lengths: -1 and +1, up to the divisor n - 1 over 80 tokens
    rewards = torch.tensor([[0.0] * 4, [1.0] * 4], dtype=torch.float64)
    got = whiten(
        rewards, every(rewards), over="tokens", eps=0.0, hold_dead=False, num_tokens=torch.full((2, 4), 10)
    )
    assert got[0].tolist() == pytest.approx([-math.sqrt(79 / 80)] * 4)
    assert got[1].tolist() == pytest.approx([math.sqrt(79 / 80)] * 4)


def test_nothing_to_compare_whitens_to_zero():
    flat = torch.full((2, 2), 0.7)
    assert torch.equal(
        whiten(flat, every(flat), over="rollouts", eps=0.0, hold_dead=False), torch.zeros(2, 2)
    )
    assert torch.equal(
        whiten(flat, ~every(flat), over="rollouts", eps=0.0, hold_dead=False), torch.zeros(2, 2)
    )
    with pytest.raises(ConfigError, match="num_tokens"):
        whiten(flat, every(flat), over="tokens", eps=0.0, hold_dead=False)


def test_unjudged_rollouts_stay_out_of_the_whitening():
    a = torch.tensor([[3.0, 1.0, 0.0]])  # mean 2, std sqrt(2): the unjudged 0 would be worth -sqrt(2)
    judged = torch.tensor([[True, True, False]])
    got = whiten(a, judged, over="rollouts", eps=0.0, hold_dead=False)
    assert got[0].tolist() == pytest.approx([1 / math.sqrt(2), -1 / math.sqrt(2), 0.0])
