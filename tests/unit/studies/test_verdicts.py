"""A study must be able to say no: with an ingredient broken, its verdict turns."""

from functools import cache

import pytest
import torch

import peira.studies.kl
from peira.studies.study import find, run_study, with_arms

SEEDS = {
    "ustat": 8,
    "fipo": 4,
    "staleness": 10,
    "spurious": 60,
    "gdpo": 4,
    "collapse": 8,
    "kl": 6,
    "noise": 60,
}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def intact(name):
    return run_study(find(name), quick=True, num_seeds=SEEDS[name])


def broken(name, arms):
    return run_study(with_arms(find(name), **arms), quick=True, num_seeds=SEEDS[name])


def turns(name, arms, *claims):
    """The claims hold as they are, and do not with these arms instead."""
    before, after = intact(name).verdicts(), broken(name, arms).verdicts()
    for claim in claims:
        assert before[claim] == "holds", claim
        assert after[claim] == "does not hold", claim


def test_a_std_is_no_u_statistic():
    turns("ustat", {"loo": {"name": "grpo"}}, "identity", "variance", "oracle", "optimum")


def test_the_group_mean_is_not_the_leave_one_out_mean():
    turns("ustat", {"loo": {"name": "rloo", "baseline": "group_mean"}}, "identity", "variance")


def test_fipo_that_may_shrink_leaves_its_interval():
    turns("fipo", {"fipo": {"name": "fipo", "future_kl": {"low": 0.8}}}, "bounded")


def test_fipo_with_weights_of_one_is_dapo_on_every_update():
    turns("fipo", {"fipo": {"name": "fipo", "future_kl": {"low": 1.0, "high": 1.0}}}, "later_updates")


def test_fipo_with_unsafe_tokens_amplifies_them():
    unsafe = {"name": "fipo", "future_kl": {"safety_ratio": 1000.0, "max_ratio": 1000.0}}
    turns("fipo", {"fipo": unsafe}, "safety")


@pytest.mark.slow
def test_a_switched_off_correction_learns_no_faster_than_none():
    none = {"name": "grpo", "mismatch": {"correction": "none", "old_logprobs": "learner"}}
    turns("staleness", {"full": none}, "full_over_truncated")
    turns("staleness", {"truncated": none}, "truncated_over_uncorrected")


@pytest.mark.slow
def test_a_mask_that_drops_fresh_rollouts_never_arrives():
    # the band leaves out the ratio 1 itself
    shut = {
        "name": "grpo",
        "mismatch": {"correction": "mask", "low": 1.5, "high": 2.0, "old_logprobs": "learner"},
    }
    before, after = intact("staleness").verdicts(), broken("staleness", {"masked": shut}).verdicts()
    assert before["end_point"] == "holds"
    assert after["end_point"] == "does not hold"


@pytest.mark.slow
def test_without_the_clip_random_rewards_amplify_nothing():
    turns(
        "spurious",
        {"clip": {"name": "grpo", "clip_low": 1 - 1e-9, "clip_high": 1e9}},
        "amplifies",
        "sharpens",
    )


@pytest.mark.slow
def test_a_tight_upper_bound_keeps_the_effect():
    turns("spurious", {"no_clip": {"name": "grpo"}}, "needs_clip")
    assert broken("spurious", {"no_clip": {"name": "grpo"}}).verdicts()["no_clip_spread"] != "holds"


@pytest.mark.slow
def test_summing_first_is_no_gdpo():
    summed = {"name": "grpo", "scale": "sample_std", "average": "sequence_sum"}
    turns("gdpo", {"gdpo": summed}, "gdpo", "more_than_scale")


@pytest.mark.slow
def test_normalised_channels_are_no_grpo():
    turns("gdpo", {"grpo": {"name": "gdpo", "average": "sequence_sum"}}, "grpo", "more_than_scale")


@pytest.mark.slow
def test_without_a_repair_groups_stay_dead_and_nothing_is_gained():
    turns("collapse", {"avspo": {"name": "grpo"}}, "dead")
    assert broken("collapse", {"avspo": {"name": "grpo"}}).verdicts()["gain"] == "does not hold"


@pytest.mark.slow
def test_another_std_has_other_weights():
    turns("collapse", {"grpo": {"name": "grpo", "scale": "sample_std"}}, "identity")


@pytest.mark.slow
def test_a_push_of_another_size_is_told_from_avspo():
    found = intact("collapse").verdicts()["imagined"]
    weaker = {"name": "grpo", "repair": {"kind": "sign", "magnitude": 0.2}}
    assert found == "does not hold"
    assert broken("collapse", {"sign_repair": weaker}).verdicts()["imagined"] == "holds"


@pytest.mark.slow
def test_the_wrong_std_and_the_wrong_placement_rest_elsewhere():
    swapped = {
        "k3": {"name": "grpo", "std_eps": 0.0, "scale": "sample_std", "kl": {"coefficient": 0.5}},
        "k3_sample_std": {"name": "grpo", "std_eps": 0.0, "kl": {"coefficient": 0.5}},
        "loo_k1_reward": {"name": "rloo", "kl": {"coefficient": 0.5}},
        "loo_k3_loss": {"name": "rloo", "kl": {"coefficient": 0.5, "estimator": "k2"}},
        "loo_k1_loss": {"name": "rloo", "kl": {"coefficient": 0.5, "estimator": "k2"}},
    }
    turns("kl", swapped, "fixed_points", "std_convention", "reverse_rest", "forward_rest", "null")


@pytest.mark.slow
def test_anchors_without_a_coefficient_recover_nothing(monkeypatch):
    assert intact("kl").verdicts()["recovers"] == "holds"
    monkeypatch.setattr(
        peira.studies.kl, "ANCHORS", {"forward anchors": ("forward", 0.0), "JS anchors": ("js", 0.0)}
    )
    after = broken("kl", {}).verdicts()
    assert after["recovers"] == "does not hold"
    assert after["same_while_sampled"] == "does not hold"
    assert after["js"] == "does not hold"


@pytest.mark.slow
def test_a_correction_that_is_off_follows_the_noisy_run():
    turns(
        "noise", {"backward": {"name": "rloo"}}, "backward_is_clean", "backward_is_a_rescale", "two_sources"
    )


@pytest.mark.slow
def test_an_algorithm_that_turns_the_reward_around_unlearns_at_positive_informedness(monkeypatch):
    import peira.studies.noise as noise

    seen = noise.observed
    monkeypatch.setattr(noise, "observed", lambda *given: 1 - seen(*given))
    after = broken("noise", {}).verdicts()
    assert after["rate"] == after["fate"] == after["equation"] == "does not hold"
