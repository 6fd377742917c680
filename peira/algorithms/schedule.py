"""The learning rate as a function of the step."""

import math
from typing import Literal

Schedule = Literal["constant", "linear", "cosine"]


def learning_rate(
    step: int,
    *,
    peak: float,
    warmup_steps: int,
    total_steps: int,
    schedule: Schedule,
    min_fraction: float,
) -> float:
    """Rate of optimizer step number `step`, counted from 0.

    The first `warmup_steps` rise linearly, at peak * (step + 1) / (warmup_steps + 1): no step is wasted at
    rate 0, and step `warmup_steps` is the first at the peak. After that the rate stays ("constant") or falls
    to peak * min_fraction at the last planned step, and stays there for steps beyond the plan.
    """
    if step < warmup_steps:
        return peak * (step + 1) / (warmup_steps + 1)
    length = total_steps - 1 - warmup_steps
    done = min(1.0, (step - warmup_steps) / length) if length > 0 else 0.0
    match schedule:
        case "constant":
            return peak
        case "linear":
            share = 1.0 - done
        case "cosine":
            share = (1.0 + math.cos(math.pi * done)) / 2
    return peak * (min_fraction + (1.0 - min_fraction) * share)
