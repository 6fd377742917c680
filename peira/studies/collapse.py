"""Collapsed groups: what a repair adds, and whether it is more than a larger step.

64 prompts of very different difficulty with sixteen answers each. Most groups agree and teach nothing. AVSPO
gives them a constant push. The controls: the same push without imagined rewards, the best learning rate of
each method, and a network shared by all prompts instead of a table.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from scipy import stats
from torch import Tensor

from peira.algorithms.collapse import avspo_constant
from peira.algorithms.family import Algorithm, StepContext
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
    share_of,
)
from peira.studies.table import advantages, draw, gradient, scorer_of, train_batch

PROMPTS, ANSWERS, PER_STEP, SIZE = 64, 16, 16, 8
RATES = (0.5, 1.0, 2.5, 6.0, 12.0)
NET_RATES = (0.5, 1.0, 2.0, 4.0)
CONSTANT = avspo_constant(SIZE, SIZE)
"""What AVSPO gives a collapsed group of 8 beside 8 imagined rewards: .8115."""

CLAIMS = (
    Claim(
        name="identity",
        text="Every advantage ascends w(p) times the gradient of success: they differ in weight, not in "
        "direction.",
        how="five answers, G = 4, all 625 groups enumerated; largest gap to the predicted w(p) grad p over "
        "group "
        "mean, leave-one-out, std, sign and AVSPO",
        at_most=1e-5,
    ),
    Claim(
        name="wins",
        text="At learning rate .5 AVSPO is ahead of GRPO after 200 steps.",
        how="share of paired seeds in which it is",
        at_least=0.5,
    ),
    Claim(
        name="gain",
        text="By how much: at least two points of success.",
        how="mean success over all prompts at step 200, AVSPO minus GRPO, paired",
        at_least=0.02,
    ),
    Claim(
        name="dead",
        text="Hardly any group stays without a signal.",
        how="share of groups whose advantages are all 0, AVSPO, mean of 400 steps",
        at_most=0.1,
    ),
    Claim(
        name="raw",
        text="Fewer groups collapse: the collapse rate of the outcomes falls too.",
        how="share of groups with equal outcomes over 400 steps, AVSPO minus GRPO, paired",
        at_most=-0.01,
    ),
    Claim(
        name="imagined",
        text="The imagined rewards matter: pushing collapsed groups by the same constant does not do the "
        "same.",
        how="largest difference in success at step 200 of any seed between AVSPO with K = G, always on, "
        "and the sign "
        "of the outcome times its constant",
        at_least=0.01,
    ),
    Claim(
        name="tuned",
        text="The gain is more than a larger step: it survives each side's best learning rate.",
        how="success at step 200, each at its best of five rates, AVSPO minus GRPO, paired",
        at_least=0.005,
    ),
    Claim(
        name="network",
        text="It survives tuning on a network shared by all prompts.",
        how="the same with a tanh network of 32 units over 16 prompt features, best of four rates",
        at_least=0.005,
    ),
    Claim(
        name="predictor",
        text="Early all-wrong groups predict a bad end.",
        how="Pearson correlation of the all-wrong share in the first fifth with final success over 36 "
        "settings of "
        "difficulty, group size and temperature",
        at_most=0.0,
    ),
    Claim(
        name="total_predictor",
        text="The total collapse rate predicts it as well.",
        how="correlation of the total share minus that of the all-wrong share (0 or less: as good)",
        at_most=0.1,
    ),
)
NUMBERS = {
    "grpo": (0.548, 0.730, 0.899, 0.689, 0.689),
    "avspo": (0.571, 0.768, 0.922, 0.705, 0.049),
    "avspo_always": (0.584, 0.779, 0.919, 0.708, 0.000),
    "sign": (0.518, 0.684, 0.853, 0.683, 0.000),
    "unscaled": (0.336, 0.493, 0.667, 0.558, 0.558),
}
"""Success at 100, 200, 400 steps, raw and effective collapse, by an independent simulation of 8 seeds."""
SWEEP_NUMBERS = {
    "grpo": (0.734, 0.890, 0.978),
    "avspo": (0.775, 0.918, 0.975),
}
"""Success at 200 steps at the first three of those rates, by the same simulation, 6 seeds."""


class Policy(Protocol):
    """Parameters of all copies -> logits [S, P, V] of these prompts."""

    def __call__(self, parameters: Tensor, prompts: Tensor) -> Tensor:
        """`prompts` is [S, P]."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """Where training starts: parameters [S, ...], the policy over them, the right answer is number 0."""

    parameters: Tensor
    policy: Policy
    per_prompt: bool
    """Whether each prompt has parameters of its own, and its rollouts make one full step."""


def start_logits(copies: int, easiest: float, hardest: float, generator: torch.Generator) -> Tensor:
    """[S, P, V]: success log-uniform between the two, other logits N(0, .3)."""
    spread = torch.rand(copies, PROMPTS, generator=generator, dtype=torch.float64)
    low, high = torch.tensor([hardest, easiest], dtype=torch.float64).log()
    success = (low + (high - low) * spread).exp()
    logits = 0.3 * torch.randn(copies, PROMPTS, ANSWERS, generator=generator, dtype=torch.float64)
    others = logits[..., 1:].logsumexp(dim=-1)
    logits[..., 0] = others + torch.logit(success)
    return logits


def tables(copies: int, generator: torch.Generator, *, easiest: float = 0.6, hardest: float = 0.005) -> World:
    """A table of logits per prompt."""
    rows = torch.arange(copies)[:, None]

    def policy(parameters: Tensor, prompts: Tensor) -> Tensor:
        return parameters[rows, prompts]

    return World(start_logits(copies, easiest, hardest, generator), policy, per_prompt=True)


def networks(copies: int, generator: torch.Generator) -> World:
    """One tanh network of 32 units per copy over 16 features of each prompt, above fixed first logits.

    Answers are shuffled by prompt, so that "always answer 0" is not a rule the network could find: its output
    for the right answer of a prompt is the column that the prompt's shuffle puts there.
    """
    features, hidden = 16, 32
    x = torch.randn(copies, PROMPTS, features, generator=generator, dtype=torch.float64)
    first = start_logits(copies, 0.6, 0.005, generator)
    shuffle = torch.rand(copies, PROMPTS, ANSWERS, generator=generator).argsort(dim=-1)
    sizes = (features * hidden, hidden, hidden * ANSWERS)
    inner = torch.randn(copies, sizes[0], generator=generator, dtype=torch.float64) / features**0.5
    rest = torch.zeros(copies, sizes[1] + sizes[2], dtype=torch.float64)  # output 0 at the start
    rows = torch.arange(copies)[:, None]

    def policy(parameters: Tensor, prompts: Tensor) -> Tensor:
        w1, b1, w2 = parameters.split(sizes, dim=1)
        h = torch.tanh(x[rows, prompts] @ w1.unflatten(1, (features, hidden)) + b1[:, None])
        out = h @ w2.unflatten(1, (hidden, ANSWERS))
        found: Tensor = first[rows, prompts] + out.gather(-1, shuffle[rows, prompts])
        return found

    return World(torch.cat([inner, rest], dim=1), policy, per_prompt=False)


@dataclass(frozen=True, slots=True)
class Course:
    """By step and seed: mean success [steps + 1, S]; shares of groups [steps, S]."""

    success: Tensor
    collapsed: Tensor
    all_wrong: Tensor
    dead: Tensor


def step_advantages(algorithm: Algorithm, rewards: Tensor, states: list[dict[str, float]]) -> Tensor:
    """[S, P, G]; copy by copy where the method remembers something between steps."""
    if algorithm.observe is None:
        return advantages(
            algorithm, rewards, context=StepContext(outcomes=rewards.reshape(-1, rewards.shape[-1]))
        )
    judged = torch.ones_like(rewards[0], dtype=torch.bool)
    found = []
    for s, own in enumerate(rewards):
        context = StepContext(outcomes=own, state=states[s])
        found.append(algorithm.advantages(own, judged, context=context))
        states[s] = algorithm.observe(own, judged, context=context)
    return torch.stack(found)


def train(
    algorithm: Algorithm,
    make: Callable[[int, torch.Generator], World],
    generator: torch.Generator,
    *,
    copies: int,
    steps: int,
    lr: float,
    size: int = SIZE,
    temperature: float = 1.0,
) -> Course:
    """All copies at once; success is exact, over all prompts, at temperature 1."""
    world = make(copies, generator)
    parameters = world.parameters
    everything = torch.arange(PROMPTS).expand(copies, -1)
    states: list[dict[str, float]] = [{} for _ in range(copies)]
    success, collapsed, wrong, dead = [], [], [], []
    for step in range(steps + 1):
        with torch.no_grad():
            success.append(torch.softmax(world.policy(parameters, everything), dim=-1)[..., 0].mean(dim=1))
        if step == steps:
            break
        prompts = torch.rand(copies, PROMPTS, generator=generator).argsort(dim=1)[:, :PER_STEP]
        arms = draw(world.policy(parameters, prompts) / temperature, size, generator)
        rewards = (arms == 0).double()
        a = step_advantages(algorithm, rewards, states)
        count = rewards.sum(dim=-1)
        wrong.append((count == 0).double().mean(dim=1))
        collapsed.append(((count == 0) | (count == size)).double().mean(dim=1))
        dead.append((a.abs().sum(dim=-1) < 1e-6).double().mean(dim=1))

        def score(p: Tensor, prompts: Tensor = prompts, arms: Tensor = arms) -> Tensor:
            return scorer_of(arms)(world.policy(p, prompts) / temperature)

        batch = train_batch(a.flatten(), old=score(parameters).detach())
        share = copies * (PER_STEP if world.per_prompt else 1)
        parameters = parameters - lr * gradient(algorithm, parameters, score, batch, copies=share)
    return Course(*(torch.stack(column) for column in (success, collapsed, wrong, dead)))


def identity_error(setting: Setting) -> float:
    """Largest gap between the enumerated gradient and w(p) grad p, over five advantages."""
    size = 4
    logits = torch.tensor([0.3, -1.0, 0.5, 0.1, -0.4], dtype=torch.float64)
    probs = torch.softmax(logits, dim=0)
    p = float(probs[1])
    groups = torch.cartesian_prod(*[torch.arange(5)] * size)
    chance = probs[groups].prod(dim=1)
    rewards = (groups == 1).double()
    score = torch.eye(5, dtype=torch.float64)[groups] - probs
    truth = p * (torch.eye(5, dtype=torch.float64)[1] - probs)
    k = torch.arange(size + 1, dtype=torch.float64)
    pick = torch.distributions.Binomial(size, torch.tensor(p, dtype=torch.float64)).log_prob(k).exp()
    std = float((pick * ((k / size) * (1 - k / size)).sqrt()).sum()) / (p * (1 - p))
    # beside K = G imagined rewards: rate is 1 in a step with one collapsed group
    flat = avspo_constant(size, size) * (p ** (size - 1) + (1 - p) ** (size - 1))
    weights = {
        "unscaled": (size - 1) / size,
        "leave_one_out": 1.0,
        "grpo": std,
        "sign": 2.0,
        "avspo_always": std + flat,
    }
    worst = 0.0
    for arm, weight in weights.items():
        algorithm = setting.algorithm(arm)
        judged = torch.ones(1, size, dtype=torch.bool)
        a = torch.cat(
            [algorithm.advantages(row, judged, context=StepContext(outcomes=row)) for row in rewards.split(1)]
        )
        found = (chance[:, None] * (a[:, :, None] * score).mean(dim=1)).sum(dim=0)
        worst = max(worst, float((found - weight * truth).abs().max()))
    return worst


def sweep(
    setting: Setting, rates: Sequence[float], make: Callable[[int, torch.Generator], World], copies: int
) -> dict[str, dict[float, Tensor]]:
    """Success at step 200 [S] by arm and learning rate."""
    return {
        arm: {
            lr: train(
                setting.algorithm(arm), make, setting.generator(11), copies=copies, steps=200, lr=lr
            ).success[-1]
            for lr in rates
        }
        for arm in ("grpo", "avspo", "sign")
    }


def best(by_rate: dict[float, Tensor]) -> float:
    """The rate of the highest mean."""
    return max(by_rate, key=lambda lr: float(by_rate[lr].mean()))


def grid(setting: Setting) -> tuple[list[float], list[float], list[float]]:
    """All-wrong and total collapse in the first fifth, and final success, over 36 settings."""
    wrong, total, final = [], [], []
    steps = 100
    for easiest, hardest in ((0.6, 0.1), (0.6, 0.005), (0.2, 0.005), (0.05, 0.002)):
        for size in (4, 8, 16):
            for temperature in (0.6, 1.0, 1.4):

                def make(
                    copies: int, generator: torch.Generator, ends: tuple[float, float] = (easiest, hardest)
                ) -> World:
                    return tables(copies, generator, easiest=ends[0], hardest=ends[1])

                course = train(
                    setting.algorithm("grpo"),
                    make,
                    setting.generator(13),
                    copies=4,
                    steps=steps,
                    lr=0.5,
                    size=size,
                    temperature=temperature,
                )
                wrong.append(float(course.all_wrong[: steps // 5].mean()))
                total.append(float(course.collapsed[: steps // 5].mean()))
                final.append(float(course.success[-1].mean()))
    return wrong, total, final


def correlation(x: Sequence[float], y: Sequence[float]) -> Measured:
    """Pearson's r with Fisher's interval."""
    found = stats.pearsonr(x, y)
    interval = found.confidence_interval(0.95)
    return Measured(
        value=float(found.statistic), low=float(interval.low), high=float(interval.high), num_seeds=len(x)
    )


def run(setting: Setting) -> Findings:
    """The curves, the controls, the sweeps, the predictor."""
    seeds = setting.num_seeds
    courses = {
        arm: train(setting.algorithm(arm), tables, setting.generator(10), copies=seeds, steps=400, lr=0.5)
        for arm in NUMBERS
    }
    grpo, avspo = courses["grpo"], courses["avspo"]
    gain = avspo.success[200] - grpo.success[200]
    control = [
        train(setting.algorithm(arm), tables, setting.generator(10), copies=seeds, steps=200, lr=0.5).success[
            -1
        ]
        for arm in ("avspo_full", "sign_repair")
    ]
    measured: dict[str, Measured] = {
        "identity": exact(identity_error(setting)),
        "wins": share_of(int((gain > 0).sum()), seeds),
        "gain": over_seeds(gain),
        "dead": over_seeds(avspo.dead.mean(dim=0)),
        "raw": over_seeds(avspo.collapsed.mean(dim=0) - grpo.collapsed.mean(dim=0)),
        "imagined": exact(float((control[0] - control[1]).abs().max())),
    }
    expected = []
    for arm, (at100, at200, at400, raw, effective) in NUMBERS.items():
        course = courses[arm]
        for what, value, found in (
            ("success at 100", at100, course.success[100]),
            ("success at 200", at200, course.success[200]),
            ("success at 400", at400, course.success[400]),
            ("collapsed", raw, course.collapsed.mean(dim=0)),
            ("dead", effective, course.dead.mean(dim=0)),
        ):
            expected.append(
                Expected(name=f"{what}, {arm}", value=value, tolerance=0.02, measured=over_seeds(found))
            )
    steps = list(range(0, 401, 10))
    panels = [
        Panel(
            title="Success at learning rate .5",
            x="step",
            y="mean success over prompts",
            lines=[
                Line(name=arm, x=steps, y=[float(course.success[t].mean()) for t in steps])
                for arm, course in courses.items()
            ],
        ),
        Panel(
            title="Groups without a signal, mean of 400 steps",
            x="share",
            y="",
            bars={
                "grpo: collapsed": over_seeds(grpo.collapsed.mean(dim=0)),
                "avspo: collapsed": over_seeds(avspo.collapsed.mean(dim=0)),
                "avspo: dead after repair": over_seeds(avspo.dead.mean(dim=0)),
            },
        ),
    ]
    notes = []
    if not setting.quick:
        swept = sweep(setting, RATES, tables, max(2, setting.num_seeds - 6))
        shared = sweep(setting, NET_RATES, networks, setting.num_seeds)
        for name, by_arm in (("tuned", swept), ("network", shared)):
            rates = {arm: best(by_rate) for arm, by_rate in by_arm.items()}
            measured[name] = over_seeds(by_arm["avspo"][rates["avspo"]] - by_arm["grpo"][rates["grpo"]])
            where = "table" if name == "tuned" else "network"
            at = ", ".join(f"{arm} {lr:g}" for arm, lr in rates.items())
            notes.append(f"Best learning rates, {where}: {at}.")
        expected += [
            Expected(
                name=f"success at 200, {arm}, rate {lr:g}",
                value=value,
                tolerance=0.025,
                measured=over_seeds(swept[arm][lr]),
            )
            for arm, row in SWEEP_NUMBERS.items()
            for lr, value in zip(RATES, row, strict=False)
        ]
        wrong, total, final = grid(setting)
        measured["predictor"] = correlation(wrong, final)
        sharper = correlation(total, final)
        measured["total_predictor"] = Measured(
            value=sharper.value - measured["predictor"].value,
            low=sharper.low - measured["predictor"].value,
            high=sharper.high - measured["predictor"].value,
            num_seeds=len(final),
        )
        notes.append(
            f"Correlation with final success over 36 settings: all-wrong {measured['predictor']}, total "
            f"{sharper}."
        )
        for title, by_arm in (("table", swept), ("shared network", shared)):
            panels.append(
                Panel(
                    title=f"Success at step 200 by learning rate, {title}",
                    x="learning rate",
                    y="mean success over prompts",
                    log_x=True,
                    lines=[
                        Line(name=arm, x=list(by_rate), y=[float(v.mean()) for v in by_rate.values()])
                        for arm, by_rate in by_arm.items()
                    ],
                )
            )
    return Findings(measured=measured, expected=expected, panels=panels, notes=notes)


ALWAYS = {"kind": "avspo", "trigger": 0.0, "lowest_trigger": 0.0, "trigger_step": 0.0}

STUDY = Study(
    name="collapse",
    setup="64 prompts x 16 answers, success log-uniform in [.005, .6] at the start; 16 prompts per step x 8 "
    "rollouts, gradient descent at .5 per prompt; success is exact.",
    source="arXiv:2605.21125; the toy and its controls are ours",
    arms={
        "grpo": {"name": "grpo"},
        "avspo": {"name": "avspo"},
        "avspo_always": {"name": "avspo", "repair": ALWAYS},
        "avspo_full": {"name": "avspo", "repair": {**ALWAYS, "exponent": 1e-9}},
        "sign_repair": {"name": "grpo", "repair": {"kind": "sign", "magnitude": CONSTANT}},
        "sign": {"name": "sign"},
        "unscaled": {"name": "grpo", "scale": "none"},
        "leave_one_out": {"name": "rloo"},
    },
    claims=CLAIMS,
    run=run,
    seeds=16,
    quick_seeds=8,
)
