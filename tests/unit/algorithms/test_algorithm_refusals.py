"""Combinations in which a setting would be ignored or cancel out, each refused with the reason."""

import pytest
from pydantic import ValidationError

from peira.build.algorithm import build_algorithm
from peira.config.algorithm import AlgorithmConfig
from peira.config.run import RunConfig
from peira.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"advantage": "pass_at_k"}, "pass_k = None: expected a number"),
        ({"pass_k": 4}, "pass_k = 4: expected a number with advantage = pass_at_k and none otherwise"),
        ({"conditions": [{"channel": "a", "requires": "b"}]}, "which alone sees the channels apart"),
        ({"advantage": "sign", "baseline": "leave_one_out"}, "has its own"),
        ({"advantage": "max_likelihood", "scale": "sample_std"}, "not divided by a group's std"),
        ({"advantage": "channels"}, "unscaled, it is the plain weighted sum"),
        ({"name": "gdpo", "overlong_buffer_tokens": 8}, "give the length its own verifier"),
        ({"advantage": "sign", "overlong_buffer_tokens": 8}, r"needs rewards in \[0, 1\]"),
        ({"advantage": "plain"}, "no other baseline"),
        ({"name": "sign", "dynamic_sampling": True}, "drawing again would discard them"),
        ({"name": "avspo", "dynamic_sampling": True}, "before they are repaired"),
        ({"name": "sign", "repair": "sign"}, "have a signal already"),
        ({"repair": "avspo"}, "in units of a standardised advantage"),
        ({"noise": {"false_positive_rate": 0.1}}, "noise.false_positive_rate = 0.1.*set noise.correction"),
        (
            {"noise": {"rates": [{"source": "a", "false_negative_rate": 0.1}]}},
            "noise.rates.*nothing is corrected",
        ),
        (
            {"noise": {"false_negative_rate": 0.1, "appeals": {"verifier": "math"}}},
            "noise.false_negative_rate = 0.1.*nothing is corrected",
        ),
        (
            {
                "name": "backward_noise",
                "noise": {"rates": [{"source": "a", "false_positive_rate": 0.6, "false_negative_rate": 0.4}]},
            },
            r"noise\.rates\.0\.false_negative_rate = 0.4.*points the other way",
        ),
        (
            {"name": "backward_noise", "noise": {"rates": [{"source": "a"}, {"source": "a"}]}},
            r"noise\.rates\.1\.source = 'a': expected each source once",
        ),
        (
            {"name": "forward_noise", "noise": {"rates": [{"source": "a", "false_positive_rate": 0.1}]}},
            "does not read it",
        ),
        ({"noise": {"drift_rate": 0.1}}, "noise.drift_rate = 0.1.*which the equation is about"),
        ({"name": "backward_noise", "noise": {"drift_rate": 0.1}}, "is for uncorrected rewards"),
        ({"name": "backward_noise", "scale": "population_std"}, "affine in the reward and cancels"),
        ({"name": "backward_noise", "whiten": "rollouts"}, "affine in the reward and cancels"),
        (
            {
                "name": "backward_noise",
                "noise": {"correction": "backward", "false_positive_rate": 0.6, "false_negative_rate": 0.5},
            },
            "points the other way",
        ),
        ({"name": "backward_noise", "repair": "sign"}, "which groups are collapsed is then uncertain"),
        ({"name": "backward_noise", "overlong_buffer_tokens": 8}, "binary rewards"),
        ({"name": "backward_noise", "advantage": "sign", "baseline": "group_mean"}, "advantage = group"),
        ({"noise": {"correction": "forward"}}, "the coefficient itself"),
        (
            {"name": "forward_noise", "noise": {"correction": "forward", "false_positive_rate": 0.1}},
            "does not read it",
        ),
        ({"name": "cispo", "dual_clip": 3.0}, "which clips no loss"),
        ({"loss": "reinforce", "mismatch": {"max_drop": 0.5}}, "reads no old log-probs"),
        ({"loss": "reinforce", "clip_high": 0.5}, "clip_high = 0.5.*no ratio to clip"),
        ({"clip_low": 1.0}, "no lower bound"),
        ({"name": "gspo", "future_kl": {}}, "no ratio per token"),
        ({"future_kl": {"low": 1.5, "high": 1.2}}, "future_kl.low = 1.5: expected at most"),
        ({"mismatch": {"low": 0.3}}, "no lower edge unless"),
        ({"mismatch": {"correction": "mask", "low": 3.0}}, "less than mismatch.high"),
        (
            {"mismatch": {"correction": "none", "level": "sequence_product"}},
            "correction = none; leave it out",
        ),
        ({"anchors": {"generator": "alpha"}}, "anchors.alpha = None: expected a number"),
        ({"anchors": {"alpha": 0.5}}, "anchors.alpha = 0.5.*none otherwise"),
        ({"kl": {"others": [{"model": "a", "coefficient": 0.1}]}}, "where the penalty is off"),
        (
            {
                "kl": {
                    "coefficient": 0.1,
                    "place": "both",
                    "others": [{"model": "a", "coefficient": 0.1}],
                }
            },
            "in the reward there is one reference",
        ),
        ({"advantage": "steps"}, "process = None: expected a section"),
        (
            {"advantage": "steps", "process": {"verifier": "p"}, "dynamic_sampling": True},
            "dynamic_sampling = True.*outcomes mean nothing",
        ),
        (
            {"advantage": "steps", "process": {"verifier": "p"}, "baseline": "leave_one_out"},
            "which has its own",
        ),
        ({"kl": {"place": "reward"}}, "where the penalty is off"),
        ({"kl": {"coefficient": 0.1, "level": "token"}}, "token by token"),
        ({"kl": {"coefficient": 0.1, "place": "reward", "estimator": "k1", "off_policy": True}}, "is fixed"),
        ({"kl": {"coefficient": 0.1, "place": "reward"}}, "k3 there pushes away"),
        (
            {"kl": {"coefficient": 0.1, "place": "reward", "estimator": "k1", "level": "token"}},
            "misses what it does to later ones",
        ),
        ({"kl": {"coefficient": 0.1, "place": "both", "estimator": "k2"}}, "k1 or k3 in both"),
        ({"name": "avspo", "repair": {"kind": "avspo", "trigger": 0.95}}, "between lowest_trigger"),
    ],
)
def test_void_combinations_are_refused_with_the_reason(settings, message):
    with pytest.raises(ValidationError, match=message):
        AlgorithmConfig.model_validate(settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"kl": {"coefficient": 0.1, "place": "reward", "estimator": "k3", "allow_biased": True}},
        {"kl": {"coefficient": 0.1, "place": "reward", "estimator": "k1", "level": "return_to_go"}},
        {"kl": {"coefficient": 0.1, "place": "both"}},
        {"kl": {"coefficient": 0.1, "off_policy": True}},
        {"name": "dapo", "mismatch": {"correction": "mask", "low": 0.5, "high": 5.0}},
        {"mismatch": {"old_logprobs": "learner", "max_drop": 0.5, "veto": 1e-4, "normalise": True}},
        {"loss": "reinforce"},
        {"anchors": {}},
        {"advantage": "steps", "scale": "population_std", "process": {"verifier": "p"}},
        {"name": "gspo", "process": {"verifier": "p", "reach": "own"}},
        {"anchors": {"generator": "alpha", "alpha": 0.5}},
        {
            "name": "grpo",
            "noise": {"drift_rate": 0.1, "false_positive_rate": 0.6, "false_negative_rate": 0.6},
        },
        {"noise": {"false_positive_rate": 0.1, "appeals": {"verifier": "math"}}},
        {"name": "backward_noise", "noise": {"appeals": {"verifier": {"kind": "numeric"}, "share": 0.5}}},
        {"mismatch": {"correction": "none"}},
        {"name": "fipo", "future_kl": {"safety": "cap", "low": 0.8}},
        {"name": "avspo", "repair": {"kind": "sign", "magnitude": 0.8}},
        {"name": "gdpo", "conditions": [{"channel": "format", "requires": "math"}]},
    ],
)
def test_combinations_that_make_sense_build(settings):
    algorithm = build_algorithm(
        AlgorithmConfig.model_validate(settings), max_tokens=4, channels={"math": 1.0, "format": 0.5}
    )
    assert algorithm.needs_old_logprobs == (settings.get("mismatch", {}).get("old_logprobs") == "learner")
    assert algorithm.needs_reference == ("kl" in settings)


RUN = {"model": "some/model", "data": "tasks.jsonl", "verifiers": [{"kind": "math"}], "group_size": 4}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"algorithm": {"name": "pass_at_k", "pass_k": 4}},
            "algorithm.pass_k = 4: expected less than group_size",
        ),
        (
            {"algorithm": "avspo", "verifiers": [{"kind": "math", "weight": 2.0}]},
            "verifiers.0.weight = 2.0: expected weights >= 0 that add up to at most 1 with a repair",
        ),
        (
            {
                "algorithm": "sign",
                "verifiers": [{"kind": "math", "weight": 0.5}, {"kind": "numeric", "weight": -0.1}],
            },
            "verifiers.1.weight = -0.1.*with sign",
        ),
    ],
)
def test_methods_that_must_know_which_end_is_right_look_at_the_whole_run(settings, message):
    with pytest.raises(ValidationError, match=message):
        RunConfig.model_validate(RUN | settings)


def test_an_eps_for_whitening_alone_is_read():
    RunConfig.model_validate(RUN | {"algorithm": {"whiten": "rollouts", "std_eps": 0.1}})


def test_something_else_than_settings_is_refused():
    with pytest.raises(ValidationError, match="dictionary or"):
        AlgorithmConfig.model_validate(3)


def test_a_condition_on_an_unknown_verifier_is_named():
    config = AlgorithmConfig.model_validate(
        {"name": "gdpo", "conditions": [{"channel": "fromat", "requires": "math"}]}
    )
    with pytest.raises(ConfigError, match=r"conditions.0.channel = 'fromat'.*math, format"):
        build_algorithm(config, max_tokens=4, channels={"math": 1.0, "format": 0.5})
