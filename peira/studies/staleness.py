"""Rollouts that are many updates old: which correction keeps learning.

A six-armed bandit whose samples come from the policy of L updates ago. The learner's own log-probs at the
start of the update are the old ones; the gap between them and the sampler's is what the corrections handle.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from peira.algorithms.ratio import Level, effective_sample_size, mismatch_weights, too_stale
from peira.studies.study import (
    Claim,
    Expected,
    Findings,
    Line,
    Measured,
    Panel,
    Setting,
    Study,
    exact,
    over_seeds,
)
from peira.studies.table import advantages, draw, gradient, scorer_of, train_batch

SUCCESS = (0.9, 0.6, 0.5, 0.4, 0.3, 0.2)
START = (0.0, 1.5, 1.0, 0.5, 0.0, 0.0)
LAGS = (0, 16, 64)
CHECKS = (50, 100, 300)
GROUPS, SIZE, LR = 4, 16, 1.0
BYPASS = "clip_stale"

ARMS: dict[str, dict[str, Any]] = {
    "uncorrected": {"mismatch": {"correction": "none", "old_logprobs": "learner"}},
    "truncated": {"mismatch": {"high": 2.0, "old_logprobs": "learner"}},
    "full": {"mismatch": {"high": 1e8, "old_logprobs": "learner"}},
    "masked": {"mismatch": {"correction": "mask", "low": 0.5, "high": 2.0, "old_logprobs": "learner"}},
    BYPASS: {"clip_low": 0.2, "clip_high": 0.2},
}
NUMBERS = {
    "uncorrected": ((0.888, 0.896, 0.899), (0.834, 0.899, 0.900), (0.664, 0.855, 0.900)),
    "truncated": ((0.888, 0.896, 0.899), (0.878, 0.895, 0.899), (0.788, 0.885, 0.899)),
    "full": ((0.888, 0.896, 0.899), (0.884, 0.896, 0.899), (0.882, 0.895, 0.899)),
    "masked": ((0.888, 0.896, 0.899), (0.821, 0.890, 0.899), (0.623, 0.724, 0.894)),
    BYPASS: ((0.888, 0.896, 0.899), (0.599, 0.692, 0.892), (0.543, 0.570, 0.667)),
}
"""Expected reward after 50, 100, 300 updates at lags 0, 16, 64, by an independent simulation of 16 seeds."""
BIAS = {
    "none": 0.0495,
    "token": 0.0357,
    "sequence_product": 0.0,
    "sequence_geometric": 0.0230,
    "token, cap 1.2": 0.0372,
    "product, band to 1.2": 0.0859,
}
"""Distance of each weight's expected gradient from the true one, by independent enumeration."""

CLAIMS = (
    Claim(
        name="no_lag",
        text="Without lag every correction is the identity.",
        how="largest difference between arms' policies over 300 updates at L = 0, common random numbers",
        at_most=1e-9,
    ),
    Claim(
        name="full_over_truncated",
        text="At L = 64 the full ratio learns faster than the truncated one.",
        how="expected reward after 50 updates, paired over seeds",
        at_least=0.03,
    ),
    Claim(
        name="truncated_over_uncorrected",
        text="Truncated learns faster than no correction.",
        how="the same, L = 64, 50 updates",
        at_least=0.03,
    ),
    Claim(
        name="uncorrected_over_masked",
        text="Dropping what lies outside a band learns slower than no correction at all.",
        how="the same, L = 64, 50 updates",
        at_least=0.03,
    ),
    Claim(
        name="masked_over_clip",
        text="Clipping against the stale policy itself is the slowest of all.",
        how="the same, L = 64, 50 updates",
        at_least=0.03,
    ),
    Claim(
        name="end_point",
        text="Staleness costs speed, not the end: all but the stale clip arrive in 300 updates.",
        how="smallest expected reward of uncorrected, truncated, full, masked at L = 64 after 300 updates "
        "(best possible .9)",
        at_least=0.88,
    ),
    Claim(
        name="product_weights",
        text="Product weights over 20 tokens collapse the effective sample size at a log-noise of .3 per "
        "token.",
        how="share of 1,000 sequences that the weights are worth; limit exp(-20 x .09) = .165",
        at_most=0.3,
    ),
    Claim(
        name="token_weights",
        text="Truncated token weights keep it.",
        how="the same noise, token level, cap 2",
        at_least=0.9,
    ),
    Claim(
        name="unbiased",
        text="Only the product over the whole row is unbiased.",
        how="two binary steps, every sequence enumerated: error of the product minus a tenth of the smallest "
        "error of the other weights (0 or less: the product stands alone)",
        at_most=0.0,
    ),
    Claim(
        name="lag_filter",
        text="A filter at 8 updates drops every row at L = 16: nothing is left to train on.",
        how="share of rows dropped",
        at_least=1.0,
    ),
)


@dataclass(frozen=True, slots=True)
class Curve:
    """Expected reward [steps + 1, S] of one arm at one lag, and its last logits."""

    reward: Tensor
    logits: Tensor


def train(setting: Setting, arm: str, lag: int, *, steps: int) -> Curve:
    """The bandit, all seeds at once."""
    algorithm, generator = setting.algorithm(arm), setting.generator(lag)
    success = torch.tensor(SUCCESS, dtype=torch.float64)
    logits = torch.tensor(START, dtype=torch.float64).expand(setting.num_seeds, -1).clone()
    past: deque[Tensor] = deque([logits], maxlen=lag + 1)
    rewards = []
    for _ in range(steps):
        rewards.append(torch.softmax(logits, dim=-1) @ success)
        arms = draw(past[0], GROUPS * SIZE, generator)  # the policy of `lag` updates ago, or the first
        right = torch.rand(arms.shape, generator=generator, dtype=torch.float64) < success[arms]
        a = advantages(algorithm, right.double().reshape(setting.num_seeds, GROUPS, SIZE))
        score = scorer_of(arms)
        sampling = score(past[0])
        old = score(logits) if algorithm.needs_old_logprobs else sampling
        batch = algorithm.prepare(train_batch(a.flatten(), old=old, sampling=sampling, group_size=SIZE))
        logits = logits - LR * gradient(algorithm, logits, score, batch, copies=setting.num_seeds)
        past.append(logits)
    rewards.append(torch.softmax(logits, dim=-1) @ success)
    return Curve(torch.stack(rewards), logits)


def sample_sizes(setting: Setting, noise: float) -> dict[str, list[float]]:
    """Effective share of 1,000 sequences of 20 tokens with Gaussian log-noise, by seed."""
    found: dict[str, list[float]] = {"product": [], "token": []}
    for seed in range(setting.num_seeds):
        gap = noise * torch.randn(1000, 20, generator=setting.generator(100 + seed), dtype=torch.float64)
        zero, mask = torch.zeros_like(gap), torch.ones(1000, 20, dtype=torch.bool)
        product = mismatch_weights(
            gap, zero, mask, level="sequence_product", excess="truncate", low=0.0, high=1e8
        )
        token = mismatch_weights(gap, zero, mask, level="token", excess="truncate", low=0.0, high=2.0)
        found["product"].append(effective_sample_size(product[:, 0]) / 1000)
        found["token"].append(effective_sample_size(token) / token.numel())
    return found


def bias_by_weight(setting: Setting) -> dict[str, float]:
    """Two binary steps, four sequences: distance of each weight's expected gradient from the true one."""
    first = torch.tensor([0, 0, 1, 1])
    second = torch.tensor([0, 1, 0, 1])

    def score(logits: Tensor) -> Tensor:
        signs = torch.stack([first, second], dim=1) * 2 - 1
        own = torch.stack([logits[0].expand(4), logits[1:][first]], dim=1)
        return torch.nn.functional.logsigmoid(signs * own)

    learner = torch.tensor([0.6, 0.3, 0.8], dtype=torch.float64).logit()
    sampler = torch.tensor([0.5, 0.4, 0.6], dtype=torch.float64).logit()
    reward = (first != second).double()
    truth = torch.zeros(3, dtype=torch.float64)
    own = learner.detach().requires_grad_()
    (truth,) = torch.autograd.grad((score(own).sum(dim=1).exp() * reward).sum(), own)
    old, sampling = score(learner), score(sampler)
    chance = sampling.sum(dim=1).exp()
    mask = torch.ones(4, 2, dtype=torch.bool)
    kinds: dict[str, Tensor] = {"none": torch.ones(4, 2, dtype=torch.float64)}
    levels: tuple[Level, ...] = ("token", "sequence_product", "sequence_geometric")
    for level in levels:
        kinds[level] = mismatch_weights(
            old,
            sampling,
            mask,
            level=level,
            excess="truncate",
            low=0.0,
            high=1e8,
        )
    kinds["token, cap 1.2"] = mismatch_weights(
        old, sampling, mask, level="token", excess="truncate", low=0.0, high=1.2
    )
    kinds["product, band to 1.2"] = mismatch_weights(
        old, sampling, mask, level="sequence_product", excess="mask", low=0.0, high=1.2
    )
    algorithm = setting.algorithm("uncorrected")
    found = {}
    for name, weights in kinds.items():
        a = (
            (reward - 0.4)[:, None] * weights * chance[:, None] * 4
        )  # weights() divides by tokens: 4 rows of 2
        batch = train_batch(a * 2, old=old)
        ascent = -gradient(algorithm, learner, score, batch)
        found[name] = float((ascent - truth).norm())
    return found


def run(setting: Setting) -> Findings:
    """All arms at all lags, and the algebra of the weights."""
    steps = 300
    curves = {(arm, lag): train(setting, arm, lag, steps=steps) for arm in ARMS for lag in LAGS}
    same = max(float((curves[arm, 0].reward - curves["uncorrected", 0].reward).abs().max()) for arm in ARMS)
    at50 = {arm: curves[arm, 64].reward[50] for arm in ARMS}
    sizes = {noise: sample_sizes(setting, noise) for noise in (0.1, 0.3)}
    bias = bias_by_weight(setting)
    others = min(value for name, value in bias.items() if name != "sequence_product")
    stale = too_stale(torch.full((64,), 4), current_version=20, max_lag=8)

    def gap(better: str, worse: str) -> Measured:
        return over_seeds(at50[better] - at50[worse])

    arriving = [over_seeds(curves[arm, 64].reward[300]) for arm in ARMS if arm != BYPASS]
    measured = {
        "no_lag": exact(same),
        "full_over_truncated": gap("full", "truncated"),
        "truncated_over_uncorrected": gap("truncated", "uncorrected"),
        "uncorrected_over_masked": gap("uncorrected", "masked"),
        "masked_over_clip": gap("masked", BYPASS),
        "end_point": min(arriving, key=lambda m: m.value),
        "product_weights": over_seeds(sizes[0.3]["product"]),
        "token_weights": over_seeds(sizes[0.3]["token"]),
        "unbiased": exact(bias["sequence_product"] - others / 10),
        "lag_filter": exact(float(stale.double().mean())),
    }
    expected = (
        [
            Expected(
                name=f"{arm}, L = {lag}, after {check} updates",
                value=NUMBERS[arm][i][j],
                tolerance=0.002 + 0.02 * (NUMBERS[arm][i][j] < 0.88),
                measured=over_seeds(curves[arm, lag].reward[check]),
            )
            for arm in ARMS
            for i, lag in enumerate(LAGS)
            for j, check in enumerate(CHECKS)
            if lag > 0 or arm == "uncorrected"
        ]
        + [
            Expected(name=f"effective share, {kind}, noise {noise}", value=value, tolerance=0.02, measured=m)
            for (kind, noise), value in {
                ("product", 0.1): 0.815,
                ("product", 0.3): 0.225,
                ("token", 0.1): 0.990,
                ("token", 0.3): 0.917,
            }.items()
            for m in [over_seeds(sizes[noise][kind])]
        ]
        + [
            Expected(name=f"bias of {name}", value=value, tolerance=0.00006, measured=exact(bias[name]))
            for name, value in BIAS.items()
        ]
    )
    every = list(range(0, steps + 1, 5))
    panels = [
        Panel(
            title=f"Expected reward, samples {lag} updates old",
            x="update",
            y="expected reward",
            lines=[
                Line(name=arm, x=every, y=[float(curves[arm, lag].reward[t].mean()) for t in every])
                for arm in ARMS
            ],
        )
        for lag in LAGS[1:]
    ]
    panels.append(
        Panel(
            title="Bias by weight, two binary steps",
            x="distance from the true gradient",
            y="",
            bars={name: exact(value) for name, value in bias.items()},
        )
    )
    return Findings(measured=measured, expected=expected, panels=panels)


STUDY = Study(
    name="staleness",
    setup="Six arms of success .9, .6, .5, .4, .3, .2; logits start at 0, 1.5, 1, .5, 0, 0; samples from the "
    "policy L updates ago; 4 groups of 16, advantages scaled by the population std, gradient descent at "
    "rate 1.",
    source="documentation of verl, TRL, AReaL and prime-rl; the experiment is ours",
    arms={
        arm: {"name": "grpo", "clip_low": 0.2, "clip_high": 0.2, **settings} for arm, settings in ARMS.items()
    },
    claims=CLAIMS,
    run=run,
    seeds=48,
    quick_seeds=8,
)
