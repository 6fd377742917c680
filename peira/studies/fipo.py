"""FIPO: advantages weighted by where the policy is taking the rest of the answer.

A first token decides, fifteen more are filler. The paper's headline is faster and longer reasoning; what a
toy can test is the mechanism, and whether the decisive token is learnt any sooner.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from peira.algorithms.fipo import future_kl_weights
from peira.studies.study import (
    Claim,
    Findings,
    Line,
    Panel,
    Setting,
    Study,
    exact,
    over_seeds,
)
from peira.studies.table import Scorer, advantages, draw, gradient, train_batch

LENGTH, WORDS, SIZE, GROUPS, UPDATES, PHASES, LR = 16, 4, 16, 16, 8, 8, 2.0
CHECK = 5
"""Phases after which the arms are compared: learning is then half done."""

CLAIMS = (
    Claim(
        name="first_update",
        text="On the first update of a batch FIPO is DAPO, to the last bit.",
        how="largest difference of their gradients, random policies",
        at_most=0.0,
    ),
    Claim(
        name="later_updates",
        text="On later updates it is not.",
        how="largest difference of their gradients after one update",
        at_least=1e-6,
    ),
    Claim(
        name="faster",
        text="The decisive token is learnt sooner.",
        how="probability of the right first token after 5 phases of 8 updates, FIPO [1, 1.2] minus DAPO, "
        "paired",
        at_least=0.02,
    ),
    Claim(
        name="faster_unbounded",
        text="It is with unbounded weights.",
        how="the same, weights in [.001, 1000]",
        at_least=0.02,
    ),
    Claim(
        name="filler",
        text="The stronger the weights, the faster the filler loses entropy.",
        how="entropy per filler token at the end, DAPO minus unbounded, in nats",
        at_least=0.0,
    ),
    Claim(
        name="bounded",
        text="Bounded weights stay in their interval.",
        how="largest distance of any weight from [1, 1.2] on sequences of 256 noisy tokens",
        at_most=0.0,
    ),
    Claim(
        name="tails",
        text="Unbounded weights grow tails with length.",
        how="99.9% quantile at 256 tokens / at 16 tokens, log-noise .15 per token",
        at_least=1.1,
    ),
    Claim(
        name="token_only",
        text="Without a horizon only the token itself counts.",
        how="largest |weight - own ratio| at half-life 0",
        at_most=1e-12,
    ),
    Claim(
        name="whole_row",
        text="With an endless one the first token is weighted by the whole answer's ratio.",
        how="largest |log weight - sum of log-ratios| at half-life 1e12",
        at_most=1e-6,
    ),
    Claim(
        name="safety",
        text="A bad token that grew tenfold is not amplified.",
        how="weight of a token of ratio 12 with a negative advantage",
        at_least=1.0,
        at_most=1.0,
    ),
    Claim(
        name="padding",
        text="What stands behind the answer has no say.",
        how="largest change of a weight when garbage is padded behind the row",
        at_most=0.0,
    ),
)
UNBOUNDED: Mapping[str, float] = {"low": 1e-3, "high": 1e3}


@dataclass(frozen=True, slots=True)
class Course:
    """By phase and seed: probability of the right fork, entropy per filler token in nats."""

    fork: Tensor
    filler: Tensor


def scorer(tokens: Tensor) -> Scorer:
    """For logits [S, T, V], the log-probs of tokens [S, N, T]."""

    def score(logits: Tensor) -> Tensor:
        table = torch.log_softmax(logits, dim=-1)[:, None].expand(-1, tokens.shape[1], -1, -1)
        return table.gather(-1, tokens[..., None]).squeeze(-1).reshape(-1, tokens.shape[2])

    return score


def train(setting: Setting, arm: str) -> Course:
    """All seeds at once."""
    algorithm, generator, copies = setting.algorithm(arm), setting.generator(2), setting.num_seeds
    logits = torch.zeros(copies, LENGTH, WORDS, dtype=torch.float64)
    fork, filler = [], []
    rows = GROUPS * SIZE // UPDATES
    for phase in range(PHASES + 1):
        probs = torch.softmax(logits, dim=-1)
        fork.append(probs[:, 0, 0])
        filler.append(-(probs * probs.log())[:, 1:].sum(dim=-1).mean(dim=1))
        if phase == PHASES:
            break
        tokens = draw(logits, GROUPS * SIZE, generator).transpose(1, 2)  # [S, N, T]
        chance = torch.where(tokens[..., 0] == 0, 0.8, 0.2)
        rewards = (torch.rand(chance.shape, generator=generator) < chance).double()
        a = advantages(algorithm, rewards.reshape(copies, GROUPS, SIZE)).reshape(copies, -1)
        old = scorer(tokens)(logits).reshape(copies, -1, LENGTH)
        for cut in range(UPDATES):
            part = slice(cut * rows, (cut + 1) * rows)
            batch = train_batch(a[:, part].reshape(-1, 1), old=old[:, part].reshape(-1, LENGTH))
            # token mean over 16 tokens: times 16, so that LR is a rate on the sum
            step = gradient(algorithm, logits, scorer(tokens[:, part].contiguous()), batch, copies=copies)
            logits = logits - LR * LENGTH * step
    return Course(torch.stack(fork), torch.stack(filler))


def gradient_gap(setting: Setting, *, moved: bool) -> float:
    """Largest difference between the gradients of both arms; `moved`: after the policy left the old one."""
    worst = 0.0
    for seed in range(min(setting.num_seeds, 10)):
        generator = setting.generator(50 + seed)
        logits = torch.randn(1, LENGTH, WORDS, generator=generator, dtype=torch.float64)
        tokens = draw(logits, 32, generator).transpose(1, 2)
        a = torch.randn(32, 1, generator=generator, dtype=torch.float64)
        batch = train_batch(a, old=scorer(tokens)(logits))
        now = logits + 0.1 * torch.randn(logits.shape, generator=generator, dtype=torch.float64) * moved
        both = [gradient(setting.algorithm(arm), now, scorer(tokens), batch) for arm in ("dapo", "fipo")]
        worst = max(worst, float((both[0] - both[1]).abs().max()))
    return worst


def weights(
    setting: Setting, gap: Tensor, *, advantage: float = 1.0, arm: str = "fipo", **changes: float
) -> Tensor:
    """FIPO's factors for log-ratios [N, T], with the arm's settings."""
    config = setting.arms[arm].future_kl
    assert config is not None
    return future_kl_weights(
        gap,
        torch.zeros_like(gap),
        torch.full_like(gap, advantage),
        torch.ones_like(gap, dtype=torch.bool),
        **(config.model_dump() | changes),
    )


def run(setting: Setting) -> Findings:
    """The race, then the mechanism."""
    courses = {arm: train(setting, arm) for arm in ("dapo", "fipo", "fipo_both", "fipo_unbounded")}
    fork = {arm: course.fork[CHECK] for arm, course in courses.items()}
    generator = setting.generator(3)
    noise = {
        length: 0.15 * torch.randn(20_000, length, generator=generator, dtype=torch.float64)
        for length in (16, 64, 256)
    }
    bounded = weights(setting, noise[256][:2000])
    outside = max(0.0, float(1.0 - bounded.min()), float(bounded.max() - 1.2))
    tail = {
        length: float(weights(setting, gap, arm="fipo_unbounded")[:, 0].quantile(0.999))
        for length, gap in noise.items()
    }
    short = noise[16][:2000]
    wide: dict[str, Any] = {"low": 1e-9, "high": 1e9}
    own = weights(setting, short, half_life_tokens=0.0, **wide)
    whole = weights(setting, short, half_life_tokens=1e12, **wide)[:, 0].log()
    risky = torch.zeros(1, 4, dtype=torch.float64)
    risky[0, 1] = 2.4849066  # ratio 12
    padded = torch.cat([short, torch.full_like(short, torch.nan)], dim=1)
    config = setting.arms["fipo"].future_kl
    assert config is not None
    behind = future_kl_weights(
        padded,
        torch.zeros_like(padded),
        torch.ones_like(padded),
        torch.arange(32).expand(padded.shape) < 16,
        **config.model_dump(),
    )[:, :16]
    measured = {
        "first_update": exact(gradient_gap(setting, moved=False)),
        "later_updates": exact(gradient_gap(setting, moved=True)),
        "faster": over_seeds(fork["fipo"] - fork["dapo"]),
        "faster_unbounded": over_seeds(fork["fipo_unbounded"] - fork["dapo"]),
        "filler": over_seeds(courses["dapo"].filler[-1] - courses["fipo_unbounded"].filler[-1]),
        "bounded": exact(outside),
        "tails": exact(tail[256] / tail[16]),
        "token_only": exact(float((own - short.exp()).abs().max())),
        "whole_row": exact(float((whole - short.sum(dim=1)).abs().max())),
        "safety": exact(float(weights(setting, risky, advantage=-1.0)[0, 1])),
        "padding": exact(float((behind - weights(setting, short)).abs().max())),
    }
    phases = list(range(PHASES + 1))
    names = {
        "dapo": "DAPO",
        "fipo": "FIPO [1, 1.2]",
        "fipo_both": "FIPO [.8, 1.2]",
        "fipo_unbounded": "FIPO unbounded",
    }

    def line(arm: str, column: Tensor) -> Line:
        band = [over_seeds(values) for values in column]
        return Line(
            name=names[arm],
            x=phases,
            y=[m.value for m in band],
            low=[m.low for m in band],
            high=[m.high for m in band],
        )

    ends = ", ".join(f"{names[arm]} {over_seeds(value)}" for arm, value in fork.items())
    return Findings(
        measured=measured,
        panels=[
            Panel(
                title="The decisive token",
                x="rollout phase",
                y="probability of the right fork",
                lines=[line(arm, course.fork) for arm, course in courses.items()],
            ),
            Panel(
                title="The filler",
                x="rollout phase",
                y="entropy per token, nats",
                lines=[line(arm, course.filler) for arm, course in courses.items()],
            ),
        ],
        notes=[
            f"Right fork after {CHECK} phases: {ends}.",
            "99.9% quantile of the unbounded weight on the first token: "
            + ", ".join(f"{value:.2f} at {length} tokens" for length, value in tail.items())
            + ".",
        ],
    )


STUDY = Study(
    name="fipo",
    setup="16 tokens of a vocabulary of 4, the first decides (right in 80% or 20% of cases), the rest are "
    "filler; "
    "16 groups of 16 per phase, 8 updates each, 8 phases, gradient descent.",
    source="arXiv:2603.19835; the toy is ours",
    arms={
        "dapo": {"name": "dapo", "dual_clip": 10.0},
        "fipo": {"name": "fipo"},
        "fipo_both": {"name": "fipo", "future_kl": {"low": 0.8}},
        "fipo_unbounded": {"name": "fipo", "future_kl": dict(UNBOUNDED)},
    },
    claims=CLAIMS,
    run=run,
    seeds=100,
    quick_seeds=10,
)
