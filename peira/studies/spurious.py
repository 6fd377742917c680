"""Random rewards: what they amplify.

A policy over ten styles of reasoning, one of which is a habit. The reward is a coin that knows nothing. On
average an unclipped update goes nowhere; with several updates per rollout the clip cuts rare styles more
often than the habit, and the habit grows. Whether that looks like learning depends on whether the habit is
right more often than not.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from peira.algorithms.family import Algorithm
from peira.studies.study import (
    Claim,
    Expected,
    Findings,
    Line,
    Measured,
    Panel,
    Setting,
    Study,
    bootstrapped,
    over_seeds,
)
from peira.studies.table import advantages, draw, gradient, scorer_of, train_batch

PROMPTS, SIZE, PHASES, LR = 64, 16, 40, 2.0
UNCLIPPED = {"clip_low": 1 - 1e-9, "clip_high": 1e9}


@dataclass(frozen=True, slots=True)
class Family:
    """Where a policy starts, and how often an answer in each style is right."""

    habit: float
    """Share of style 0 at the start; the others share the rest evenly."""
    with_habit: float
    without: float
    num_styles: int = 10

    def start(self, copies: int) -> Tensor:
        """Logits [S, V]."""
        rest = (1 - self.habit) / (self.num_styles - 1)
        shares = torch.full((copies, self.num_styles), rest)
        shares[:, 0] = self.habit
        return shares.log()

    def accuracy(self, habit: float) -> float:
        """Share of right answers at this share of the habit."""
        return habit * self.with_habit + (1 - habit) * self.without


MATH = Family(0.65, 0.609, 0.28)
"""A habit that helps: the shape of Qwen2.5-Math-7B and reasoning in code."""
BAD_CODE = Family(0.98, 0.21, 0.40)
"""A habit that hurts: the shape of OLMo2-7B-SFT."""
NO_CODE = Family(0.004, 0.609, 0.28)
"""Hardly any habit."""
FLAT = Family(0.1, 0.609, 0.28)
TWO = Family(0.65, 0.609, 0.28, num_styles=2)

CLAIMS = (
    Claim(
        name="amplifies",
        text="Random rewards amplify a habit when rollouts are used for several clipped updates.",
        how="final share of the habit, 8 clipped updates minus 1 update, from .65",
        at_least=0.08,
    ),
    Claim(
        name="needs_clip",
        text="Without the clip there is no drift towards the habit.",
        how="final share minus .65 with 8 updates and no clip",
        at_most=0.0,
    ),
    Claim(
        name="no_clip_spread",
        text="Without the clip, seeds scatter at least 1.3 times as much.",
        how="standard deviation of the final share over seeds, unclipped / clipped",
        at_least=1.3,
    ),
    Claim(
        name="one_update",
        text="With one update per rollout nothing moves.",
        how="final share minus .65",
        at_least=-0.02,
        at_most=0.02,
    ),
    Claim(
        name="no_habit",
        text="A family without the habit does not acquire it.",
        how="final share, from .004",
        at_most=0.02,
    ),
    Claim(
        name="bad_habit",
        text="A family whose habit is worse than the alternative gains no accuracy.",
        how="change of accuracy in points, habit .98 right in 21%, others in 40%",
        at_most=0.5,
    ),
    Claim(
        name="looks_like_learning",
        text="Where the habit helps, random rewards look like learning.",
        how="change of accuracy in points, habit .65 right in 60.9%, others in 28%",
        at_least=2.0,
    ),
    Claim(
        name="clip_higher",
        text="Raising the upper bound to .28 removes the effect.",
        how="final share minus .65 with clip .2 / .28",
        at_least=-0.05,
        at_most=0.05,
    ),
    Claim(
        name="sharpens",
        text="What grows is certainty: entropy falls by half a nat without any information.",
        how="entropy of the style, start minus end, 8 clipped updates",
        at_least=0.4,
    ),
)


@dataclass(frozen=True, slots=True)
class Path:
    """Share of the habit [phases + 1, S] and the last logits [S, V]."""

    habit: Tensor
    logits: Tensor


def train(
    setting: Setting,
    algorithm: Algorithm,
    family: Family,
    *,
    updates: int = 8,
    coin: float = 0.5,
    copies: int | None = None,
) -> Path:
    """Forty rollout phases under a random reward, all copies at once."""
    copies = setting.num_seeds if copies is None else copies
    generator = setting.generator()
    logits = family.start(copies)
    shares = [torch.softmax(logits, dim=-1)[:, 0]]
    rows = PROMPTS * SIZE // updates
    for _ in range(PHASES):
        styles = draw(logits, PROMPTS * SIZE, generator)
        rewards = (torch.rand(copies, PROMPTS, SIZE, generator=generator) < coin).float()
        a = advantages(algorithm, rewards).reshape(copies, -1)
        old = torch.log_softmax(logits, dim=-1).gather(-1, styles)
        for cut in range(updates):
            part = slice(cut * rows, (cut + 1) * rows)
            batch = train_batch(a[:, part].reshape(-1), old=old[:, part].reshape(-1, 1))
            logits = logits - LR * gradient(
                algorithm, logits, scorer_of(styles[:, part]), batch, copies=copies
            )
        shares.append(torch.softmax(logits, dim=-1)[:, 0])
    return Path(torch.stack(shares), logits)


def entropy(logits: Tensor) -> Tensor:
    """In nats, [S]."""
    logprobs = torch.log_softmax(logits, dim=-1)
    return -(logprobs.exp() * logprobs).sum(dim=-1)


def run(setting: Setting) -> Findings:
    """All arms, families and coins."""
    few = max(2, setting.num_seeds // 2)
    clip, free, higher = (setting.algorithm(name) for name in ("clip", "no_clip", "clip_higher"))
    paths = {
        "clip, 8 updates": train(setting, clip, MATH),
        "no clip, 8 updates": train(setting, free, MATH),
        "clip, 1 update": train(setting, clip, MATH, updates=1),
        "clip-higher .28": train(setting, higher, MATH),
        "family with a bad habit": train(setting, clip, BAD_CODE, copies=few),
        "family without a habit": train(setting, clip, NO_CODE, copies=few),
    }
    end = {name: path.habit[-1] for name, path in paths.items()}
    main = paths["clip, 8 updates"]
    gain = 100 * (MATH.with_habit - MATH.without)
    loss = 100 * (BAD_CODE.with_habit - BAD_CODE.without)
    started = entropy(MATH.start(setting.num_seeds))

    def ratio_of_spreads(a: Any, b: Any) -> float:
        return float(a.std(ddof=1) / b.std(ddof=1))

    measured: dict[str, Measured] = {
        "amplifies": over_seeds(end["clip, 8 updates"] - end["clip, 1 update"]),
        "needs_clip": over_seeds(end["no clip, 8 updates"] - 0.65),
        "no_clip_spread": bootstrapped(ratio_of_spreads, end["no clip, 8 updates"], end["clip, 8 updates"]),
        "one_update": over_seeds(end["clip, 1 update"] - 0.65),
        "no_habit": over_seeds(end["family without a habit"]),
        "bad_habit": over_seeds(loss * (end["family with a bad habit"] - BAD_CODE.habit)),
        "looks_like_learning": over_seeds(gain * (end["clip, 8 updates"] - MATH.habit)),
        "clip_higher": over_seeds(end["clip-higher .28"] - 0.65),
        "sharpens": over_seeds(started - entropy(main.logits)),
    }
    ends = {name: over_seeds(value) for name, value in end.items()}
    numbers = [  # of an independent simulation, with two of its standard errors
        ("clip, 8 updates", 0.795, 0.026),
        ("no clip, 8 updates", 0.593, 0.044),
        ("clip, 1 update", 0.650, 0.008),
        ("clip-higher .28", 0.649, 0.04),
        ("family with a bad habit", 0.98, 0.01),
        ("family without a habit", 0.004, 0.002),
    ]
    if not setting.quick:
        more = {
            "flat start": (train(setting, clip, FLAT, copies=few), 0.111, 0.02),
            "two styles": (train(setting, clip, TWO, copies=few), 0.780, 0.04),
            "coin .3": (train(setting, clip, MATH, coin=0.3, copies=few), 0.798, 0.036),
            "coin .7": (train(setting, clip, MATH, coin=0.7, copies=few), 0.765, 0.036),
            "coin .001": (train(setting, clip, MATH, coin=0.001, copies=few), 0.637, 0.01),
            "upper bound .5": (train(setting, setting.algorithm("clip_half"), MATH, copies=few), 0.473, 0.06),
        }
        ends |= {name: over_seeds(path.habit[-1]) for name, (path, _, _) in more.items()}
        numbers += [(name, value, error) for name, (_, value, error) in more.items()]
    phases = list(range(PHASES + 1))

    def line(name: str) -> Line:
        band = [over_seeds(share) for share in paths[name].habit]
        return Line(
            name=name,
            x=phases,
            y=[m.value for m in band],
            low=[m.low for m in band],
            high=[m.high for m in band],
        )

    return Findings(
        measured=measured,
        expected=[
            Expected(name=f"habit at the end: {name}", value=value, tolerance=error, measured=ends[name])
            for name, value, error in numbers
        ],
        panels=[
            Panel(
                title="Random rewards, habit .65 at the start",
                x="rollout phase",
                y="share of the habit",
                lines=[line(name) for name in list(paths)[:4]],
            ),
            Panel(title="Share of the habit at the end", x="share", y="", bars=ends),
        ],
        notes=[
            "Nothing is taught here: the toy shows the amplification of what was there. Claims of progress "
            "need a random-reward control, on families with different habits."
        ],
    )


STUDY = Study(
    name="spurious",
    setup="One softmax over ten styles, the habit at .65; 64 prompts x 16 rollouts per phase, reward a fair "
    "coin, advantages scaled by the population std, 8 minibatches of 128, clip .2, gradient descent at "
    "rate 2, "
    "40 phases.",
    source="arXiv:2506.10947; the toy is ours",
    arms={
        "clip": {"name": "grpo"},
        "no_clip": {"name": "grpo", **UNCLIPPED},
        "clip_higher": {"name": "grpo", "clip_high": 0.28},
        "clip_half": {"name": "grpo", "clip_high": 0.5},
    },
    claims=CLAIMS,
    run=run,
    seeds=160,
    quick_seeds=40,
)
