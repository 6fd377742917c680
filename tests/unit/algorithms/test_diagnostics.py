import math

import pytest
import torch

from peira.algorithms.diagnostics import (
    KINDS,
    collapse_kinds,
    group_metrics,
    length_metrics,
    mismatch_metrics,
    policy_metrics,
)
from peira.algorithms.ratio import mismatch_weights
from tests.unit.algorithms.tensors import every


def kinds(outcomes, *, judged=None, truncated=None, duplicate=None):
    outcomes = torch.tensor(outcomes)
    flags = [
        torch.tensor(given) if given is not None else torch.full_like(outcomes, default, dtype=torch.bool)
        for given, default in ((judged, True), (truncated, False), (duplicate, False))
    ]
    found = collapse_kinds(outcomes, flags[0], truncated=flags[1], duplicate=flags[2])
    return [KINDS[i] for i in found.tolist()]


def test_each_kind_of_collapse_is_told_apart():
    nan = math.nan
    assert kinds(
        [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, nan], [0.5, 0.5]],
        judged=[[True, True]] * 5 + [[True, False], [True, True]],
        truncated=[[False, True], [True, True], [True, True], [True, False], [False, False]]
        + [[False, False]] * 2,
        duplicate=[[False, False]] * 4 + [[False, True]] + [[False, False]] * 2,
    ) == ["none", "all_right", "truncated", "all_wrong", "duplicate", "unjudged", "all_wrong"]


def test_a_pair_of_twins_among_others_is_not_a_duplicate_group():
    assert kinds([[0.0, 0.0, 0.0]], duplicate=[[False, True, False]]) == ["all_wrong"]
    assert kinds([[0.0, 0.0, 0.0]], duplicate=[[False, True, True]]) == ["duplicate"]


def test_unjudged_members_are_not_asked():
    assert kinds([[1.0, 1.0, 0.0]], judged=[[True, True, False]]) == ["all_right"]
    assert kinds([[0.0, 0.0, 1.0]], judged=[[True, True, False]], truncated=[[True, True, False]]) == [
        "truncated"
    ]


def test_group_metrics_add_up():
    # U1: one all-wrong, one mixed, two all-right groups of two
    outcomes = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    rewards = outcomes - torch.tensor([[0.5, 0.25], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    advantages = torch.tensor([[-0.1, 0.1], [1.0, -1.0], [0.0, 0.0], [0.0, 0.0]])
    none = torch.zeros_like(outcomes, dtype=torch.bool)
    got = group_metrics(outcomes, rewards, every(outcomes), advantages, truncated=none, duplicate=none)
    assert got["advantage/collapsed_fraction"] == 0.75
    assert got["advantage/all_wrong_fraction"] == 0.25
    assert got["advantage/all_right_fraction"] == 0.5
    assert got["advantage/dead_fraction"] == 0.5  # the length penalty revived the all-wrong group
    assert sum(got[f"advantage/{kind}_fraction"] for kind in KINDS[1:]) == got["advantage/collapsed_fraction"]
    assert got["reward/outcome_mean"] == 0.625
    assert got["reward/mean"] == pytest.approx((5 - 0.75) / 8)
    assert got["reward/judged_fraction"] == 1.0
    assert got["advantage/abs_mean"] == pytest.approx(2.2 / 8)


def test_a_step_without_a_single_verdict_reports_no_reward():
    outcomes = torch.full((2, 2), math.nan)
    none = torch.zeros(2, 2, dtype=torch.bool)
    got = group_metrics(outcomes, outcomes, none, torch.zeros(2, 2), truncated=none, duplicate=none)
    assert got["advantage/unjudged_fraction"] == got["advantage/collapsed_fraction"] == 1.0
    assert not any(name.startswith("reward/mean") for name in got)
    assert all(math.isfinite(value) for value in got.values())


def test_lengths_apart_by_how_they_ended():
    got = length_metrics(torch.tensor([4, 8, 16]), torch.tensor([False, False, True]))
    assert got == {
        "rollout/truncated_fraction": pytest.approx(1 / 3),
        "rollout/tokens_mean": pytest.approx(28 / 3),
        "rollout/tokens_max": 16.0,
        "rollout/tokens_min": 4.0,
        "rollout/finished_tokens_mean": 6.0,
    }


def test_lengths_of_nothing_or_of_nothing_finished_are_left_out():
    empty = torch.zeros(0, dtype=torch.int64)
    assert length_metrics(empty, empty.bool()) == {"rollout/truncated_fraction": 0.0}
    got = length_metrics(torch.tensor([4]), torch.tensor([True]))
    assert "rollout/finished_tokens_mean" not in got


def test_clip_shares_count_tokens_whose_gradient_is_cut():
    # ratios 1.5, 1.5, 0.5, 0.5 with A +, -, +, -: only the first (high) and the last (low) lose it
    ratios = torch.tensor([[1.5, 1.5, 0.5, 0.5, math.nan]])
    got = policy_metrics(
        ratios.log(),
        torch.zeros(1, 5),
        torch.tensor([[1.0, -1.0, 1.0, -1.0, math.nan]]),
        torch.tensor([[True, True, True, True, False]]),
        entropy=torch.tensor([[1.0, 2.0, 3.0, 4.0, math.nan]]),
        clip_low=0.2,
        clip_high=0.28,
        reference_logprobs=torch.zeros(1, 5),
    )
    assert got["policy/clipped_high_fraction"] == got["policy/clipped_low_fraction"] == 0.25
    assert got["policy/entropy"] == 2.5
    # mean of r - 1 - log r over 1.5, 1.5, 0.5, 0.5
    assert got["policy/kl_old"] == pytest.approx((0.5 - math.log(1.5) - 0.5 - math.log(0.5)) / 2)
    # reference log-probs are 0, so d = log ratio: mean (log 1.5 + log 0.5) / 2
    assert got["policy/kl_reference_k1"] == pytest.approx((math.log(1.5) + math.log(0.5)) / 2)
    # u - 1 - log u with u = 1 / ratio
    expected = ((2 / 3 - 1 + math.log(1.5)) + (2 - 1 + math.log(0.5))) / 2
    assert got["policy/kl_reference_k3"] == pytest.approx(expected)
    assert got["policy/reference_ratio_max"] == pytest.approx(2.0)


def test_nothing_trained_has_no_policy_metrics():
    empty = torch.zeros(1, 3)
    mask = empty.bool()
    assert policy_metrics(empty, empty, empty, mask, entropy=empty, clip_low=0.2, clip_high=0.2) == {}
    assert mismatch_metrics(empty, empty, mask) == {}


def test_mismatch_of_four_tokens_by_hand():
    # trainer over engine: ratios 1.25, 0.8, 1, 10; mean k3 = mean(r - 1 - log r)
    old = torch.tensor([[0.5, 0.2, 0.9, 0.1]], dtype=torch.float64).log()
    sampling = torch.tensor([[0.4, 0.25, 0.9, 0.01]], dtype=torch.float64).log()
    got = mismatch_metrics(old, sampling, every(old))
    ratios = [1.25, 0.8, 1.0, 10.0]
    assert got["mismatch/kl"] == pytest.approx(1.686854, abs=1e-6)
    assert got["mismatch/logprob_gap_max"] == pytest.approx(math.log(10))
    squares = sum(r * r for r in ratios)
    assert got["mismatch/chi_square"] == pytest.approx(squares / 4 - 1)
    assert got["mismatch/effective_fraction"] == pytest.approx(sum(ratios) ** 2 / squares / 4)


def test_capped_and_masked_tokens_are_counted():
    old, sampling = torch.tensor([[0.5, 0.2, 0.1]]).log(), torch.tensor([[0.4, 0.25, 0.01]]).log()
    for excess in ("truncate", "mask"):
        weights = mismatch_weights(old, sampling, every(old), level="token", excess=excess, low=0.5, high=2.0)
        got = mismatch_metrics(old, sampling, every(old), weights=weights)
        assert got["mismatch/capped_fraction"] == pytest.approx(1 / 3)
    assert "mismatch/capped_fraction" not in mismatch_metrics(old, sampling, every(old))


def test_sequence_ratios_are_compared_with_their_own_bounds():
    # token ratios 1.5 and 1/1.5: geometric mean 1, nothing clipped; token by token one is
    logprobs = torch.tensor([[math.log(1.5), -math.log(1.5)]])
    zeros, ones = torch.zeros(1, 2), torch.ones(1, 2)
    options = {"entropy": zeros, "clip_low": 0.2, "clip_high": 0.2}
    by_token = policy_metrics(logprobs, zeros, ones, every(ones), **options)
    by_row = policy_metrics(logprobs, zeros, ones, every(ones), **options, level="sequence")
    assert by_token["policy/clipped_high_fraction"] == 0.5
    assert by_row["policy/clipped_high_fraction"] == 0.0


def test_equal_policies_show_no_mismatch():
    same = torch.tensor([[-1.0, -2.0]])
    got = mismatch_metrics(same, same, every(same))
    assert got == {
        "mismatch/kl": 0.0,
        "mismatch/logprob_gap_mean": 0.0,
        "mismatch/logprob_gap_max": 0.0,
        "mismatch/chi_square": 0.0,
        "mismatch/effective_fraction": 1.0,
    }
