"""The group-relative family, one row each. Formulas and sources: docs/algorithms.md."""

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "grpo":    {"scale": "population_std", "clip_low": 0.2, "clip_high": 0.20, "average": "sequence_mean"},
    "dr_grpo": {"scale": "none",           "clip_low": 0.2, "clip_high": 0.20, "average": "constant"},
    "dapo":    {"scale": "population_std", "clip_low": 0.2, "clip_high": 0.28, "average": "token_mean",
                "dynamic_sampling": True},
    "rloo":    {"scale": "none",           "clip_low": 0.2, "clip_high": 0.20, "average": "sequence_sum",
                "baseline": "leave_one_out"},
}  # fmt: skip
