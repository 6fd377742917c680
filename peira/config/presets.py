"""The group-relative family, one row each. Formulas and sources: docs/algorithms.md."""

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "standard": {},  # the defaults of AlgorithmConfig
    "grpo":    {"scale": "population_std", "clip_low": 0.2, "clip_high": 0.20, "average": "sequence_mean",
                "count_dead": True},
    "dr_grpo": {"scale": "none",           "clip_low": 0.2, "clip_high": 0.20, "average": "constant",
                "count_dead": True},
    "dapo":    {"scale": "population_std", "clip_low": 0.2, "clip_high": 0.28, "average": "token_mean",
                "dynamic_sampling": True},
    "rloo":    {"scale": "none",           "clip_low": 0.2, "clip_high": 0.20, "average": "sequence_sum",
                "baseline": "leave_one_out", "count_dead": True},
    "gspo":    {"scale": "population_std", "clip_low": 3e-4, "clip_high": 4e-4, "average": "sequence_mean",
                "loss": "gspo", "count_dead": True},
    "cispo":   {"scale": "population_std", "clip_low": 1.0, "clip_high": 4.0, "average": "token_mean",
                "loss": "cispo"},
    "fipo":    {"scale": "population_std", "clip_low": 0.2, "clip_high": 0.28, "average": "token_mean",
                "dynamic_sampling": True, "dual_clip": 10.0, "future_kl": {}},
    "reinforce_pp":          {"advantage": "plain", "whiten": "tokens", "clip_low": 0.2, "clip_high": 0.2},
    "reinforce_pp_baseline": {"whiten": "tokens",                       "clip_low": 0.2, "clip_high": 0.2},
    "max_likelihood":        {"advantage": "max_likelihood", "average": "token_mean"},
    "pass_at_k":             {"advantage": "pass_at_k", "pass_k": 2, "baseline": "leave_one_out"},
    "sign":                  {"advantage": "sign"},
    "avspo":                 {"scale": "population_std", "clip_low": 0.2, "clip_high": 0.2,
                              "average": "sequence_mean", "count_dead": True, "repair": {"kind": "avspo"}},
    "gdpo":                  {"advantage": "channels", "scale": "sample_std", "whiten": "rollouts"},
    "backward_noise":        {"baseline": "leave_one_out", "noise": {"correction": "backward"}},
    "forward_noise":         {"advantage": "plain", "noise": {"correction": "forward"}},
}  # fmt: skip
