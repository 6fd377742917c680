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
}  # fmt: skip
