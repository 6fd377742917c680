"""Verifiers that err: rate or fate.

A policy with one logit chooses between a right and a wrong answer; the verifier accepts wrong ones with the
false positive rate and rejects right ones with the false negative rate. J = 1 - fpr - fnr decides the
direction, everything else only the speed. Corrections are then tried where they can matter, and where
they cannot.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from pydantic import ValidationError
from torch import Tensor

from peira.algorithms.family import Algorithm, StepContext
from peira.algorithms.fate import predict
from peira.algorithms.noise import false_negative_rate, smoothed
from peira.config.algorithm import AlgorithmConfig
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
    exact,
    over_seeds,
)
from peira.studies.table import Scorer, advantages, draw, gradient, scorer_of, train_batch

SIZE = 8
CHANNELS = ((0.2, 0.2), (0.4, 0.4), (0.5, 0.5), (0.6, 0.6), (0.6, 0.5), (0.0, 0.7), (0.7, 0.0))
"""(false positive rate, false negative rate); J = .6, .2, 0, -.2, -.1, .3, .3."""
NUMBERS = {
    (0.2, 0.2): (0.1162, 0.0087),
    (0.4, 0.4): (0.2954, 0.0318),
    (0.5, 0.5): (0.4994, 0.5016),
    (0.6, 0.6): (0.7032, 0.9681),
    (0.6, 0.5): (0.6138, 0.9313),
    (0.0, 0.7): (0.2059, 0.0190),
    (0.7, 0.0): (0.1888, 0.0143),
}
"""Mean wrong mass after 200 and 2,000 steps, by an independent simulation of 400 replicas."""

CLAIMS = (
    Claim(
        name="rate",
        text="Any J above 0 learns, whatever the noise.",
        how="largest mean wrong mass after 2,000 steps among J = .6, .2, .3, .3 (start .5)",
        at_most=0.1,
    ),
    Claim(
        name="fate",
        text="Any J below 0 unlearns.",
        how="smallest mean wrong mass after 2,000 steps among J = -.2, -.1",
        at_least=0.9,
    ),
    Claim(
        name="neutral",
        text="At J = 0 the mean goes nowhere ...",
        how="mean wrong mass after 2,000 steps minus .5",
        at_least=-0.02,
        at_most=0.02,
    ),
    Claim(
        name="spread",
        text="... and the seeds scatter ever wider.",
        how="standard deviation over seeds at step 2,000 / at step 200 (square-root growth: 3.2)",
        at_least=2.0,
    ),
    Claim(
        name="equation",
        text="The replicator equation with the finite-group factor predicts the curves.",
        how="largest |mean wrong mass - prediction| over all channels, steps 200 and 2,000",
        at_most=0.005,
    ),
    Claim(
        name="large_group_equation",
        text="Without that factor (1 / sigma) it does not, at G = 8: the finite-group correction is needed.",
        how="largest |mean wrong mass - prediction without the factor|, step 200",
        at_least=0.005,
    ),
    Claim(
        name="same_fate_unscaled",
        text="Dividing by the group's std changes the rate, not the fate.",
        how="share of channels with J not 0 for which leave-one-out advantages drift the same way",
        at_least=1.0,
    ),
    Claim(
        name="backward_is_clean",
        text="Backward correction with the true rates follows the noise-free run.",
        how="mean wrong mass, corrected minus clean, after 1,000 steps (fpr .1, fnr .2, start .8)",
        at_least=-0.002,
        at_most=0.002,
    ),
    Claim(
        name="backward_is_a_rescale",
        text="With one pair of rates it is no correction at a learning rate / J: nothing is gained by it.",
        how="largest difference of any copy's logit over the run, common random numbers",
        at_most=1e-6,
    ),
    Claim(
        name="forward_is_uncorrected",
        text="Forward correction follows the uncorrected leave-one-out run on average.",
        how="mean wrong mass, forward minus uncorrected, after 1,000 steps",
        at_least=-0.002,
        at_most=0.002,
    ),
    Claim(
        name="refused",
        text="Under a group std every correction cancels: the configuration refuses the pair.",
        how="share of {backward, forward} x {population, sample std} that is refused",
        at_least=1.0,
    ),
    Claim(
        name="two_sources",
        text="With rates that differ by source, correct rates equalise learning speed.",
        how="gap of wrong mass between sources (fnr .05 and .45) after 300 steps: corrected / uncorrected",
        at_most=0.5,
    ),
    Claim(
        name="swapped_rates",
        text="Swapped rates make the imbalance worse than no correction.",
        how="the same ratio with each source's rate given to the other",
        at_least=1.2,
    ),
    Claim(
        name="correlated_flips",
        text="Noise that follows an answer defeats all of them: the always-accepted wrong answer wins.",
        how="smallest mean mass on that answer over {uncorrected, backward, forward}, fnr .2, 2,000 steps "
        "from a "
        "tenth",
        at_least=0.9,
    ),
    Claim(
        name="master_key",
        text="J above 0 on ordinary answers is no certificate: one key accepted everywhere collapses a run.",
        how="mean mass on the key after 600 steps; J = .9 on every other answer, key at 2% at the start, "
        "512 prompts sharing one logit for it, 16 of them per step",
        at_least=0.9,
    ),
    Claim(
        name="modes",
        text="Among right answers the one that started best takes all.",
        how="mean mass on it after 4,000 steps at J = .6, from .15 beside .05 and four wrong answers",
        at_least=0.95,
    ),
    Claim(
        name="appeals",
        text="Appeals find the false negative rate.",
        how="estimate minus .2 after 50 updates of 1,024 rollouts, a tenth of rejections appealed, perfect "
        "checker",
        at_least=-0.03,
        at_most=0.03,
    ),
    Claim(
        name="lenient_appeals",
        text="A lenient checker that accepts a fifth of wrong answers biases it up by a computable amount.",
        how="estimate minus its biased limit, at half right answers",
        at_least=-0.03,
        at_most=0.03,
    ),
)


def wrong_mass(logit: Tensor) -> Tensor:
    """p = sigmoid(-logit)."""
    return torch.sigmoid(-logit)


def one_logit(wrong: Tensor) -> Scorer:
    """For logits [C], the log-prob of right or wrong answers [C, N]."""
    signs = 1.0 - 2.0 * wrong

    def score(logit: Tensor) -> Tensor:
        return torch.nn.functional.logsigmoid(signs * logit[:, None]).reshape(-1, 1)

    return score


def observed(wrong: Tensor, uniforms: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """Rewards of a verifier with these rates (broadcast to the rollouts)."""
    return (uniforms < torch.where(wrong.bool(), positive, 1 - negative)).double()


def bandit(
    algorithm: Algorithm,
    rates: Sequence[tuple[float, float]],
    generator: torch.Generator,
    *,
    copies: int,
    start: float,
    lr: float,
    checks: Sequence[int],
    told: Sequence[tuple[float, float]] | None = None,
) -> Tensor:
    """Logits [checks, channels, copies] of the two-answer policy, every channel and copy at once.

    Args:
        rates: of each channel: false positives, false negatives.
        told: what the correction is told of them; None tells it nothing.
    """
    table = torch.tensor(rates, dtype=torch.float64)
    positive, negative = (table[:, i].repeat_interleave(copies)[:, None] for i in (0, 1))
    context = None
    if told is not None:
        known = torch.tensor(told, dtype=torch.float64)
        both = [known[:, i].repeat_interleave(copies)[:, None].expand(-1, SIZE) for i in (0, 1)]
        context = StepContext(false_positive_rates=both[0], false_negative_rates=both[1])
    rows = len(rates) * copies
    logit = torch.full((rows,), -torch.logit(torch.tensor(start, dtype=torch.float64)).item()).double()
    found = []
    for step in range(max(checks) + 1):
        if step in checks:
            found.append(logit.reshape(len(rates), copies))
        # the same draws for every channel: copies of different channels are paired
        u = torch.rand(2, copies, SIZE, generator=generator, dtype=torch.float64).repeat(1, len(rates), 1)
        wrong = (u[0] < wrong_mass(logit)[:, None]).double()
        rewards = observed(wrong, u[1], positive, negative)
        a = advantages(algorithm, rewards, context=context)
        score = one_logit(wrong)
        batch = train_batch(a.flatten(), old=score(logit))
        logit = logit - lr * gradient(algorithm, logit, score, batch, copies=rows)
    return torch.stack(found)


def answers(
    setting: Setting,
    arm: str,
    start: Sequence[float],
    accepted: Sequence[float],
    *,
    steps: int,
    lr: float,
) -> Tensor:
    """Final shares [S, V] of a policy over answers, each accepted at its own rate."""
    algorithm, generator = setting.algorithm(arm), setting.generator(7)
    copies = min(setting.num_seeds, 100)
    logits = torch.tensor(start, dtype=torch.float64).log().expand(copies, -1).clone()
    rate = torch.tensor(accepted, dtype=torch.float64)
    for _ in range(steps):
        chosen = draw(logits, SIZE, generator)
        rewards = (torch.rand(chosen.shape, generator=generator, dtype=torch.float64) < rate[chosen]).double()
        a = advantages(algorithm, rewards)
        score = scorer_of(chosen)
        batch = train_batch(a.flatten(), old=score(logits))
        logits = logits - lr * gradient(algorithm, logits, score, batch, copies=copies)
    return torch.softmax(logits, dim=-1)


def master_key(setting: Setting, prompts: int = 512) -> Tensor:
    """Mass on a key [S] that all prompts share; J = .9 (fpr .05, fnr .05) on everything else.

    Sixteen prompts per step of 600. The key's one logit is moved by all of them; a prompt's own answers only
    when it is drawn.
    """
    algorithm, generator = setting.algorithm("scaled"), setting.generator(8)
    copies, drawn = min(setting.num_seeds, 40), 16
    key = torch.tensor(0.02 / 0.49, dtype=torch.float64).log()
    parameters = torch.zeros(
        copies, 1 + 2 * prompts, dtype=torch.float64
    )  # the key, then (right, wrong) each
    parameters[:, 0] = key
    rate = torch.tensor([1.0, 0.95, 0.05], dtype=torch.float64)

    def logits(p: Tensor, which: Tensor) -> Tensor:
        own = p[:, 1:].reshape(copies, prompts, 2)[:, which]
        return torch.cat([p[:, :1, None].expand(-1, len(which), 1), own], dim=-1)  # [S, P, 3]

    for _ in range(600):
        which = torch.randperm(prompts, generator=generator)[:drawn]
        chosen = draw(logits(parameters, which), SIZE, generator)
        rewards = (torch.rand(chosen.shape, generator=generator, dtype=torch.float64) < rate[chosen]).double()
        a = advantages(algorithm, rewards)

        inner = scorer_of(chosen)

        def score(p: Tensor, which: Tensor = which, inner: Scorer = inner) -> Tensor:
            return inner(logits(p, which))

        batch = train_batch(a.flatten(), old=score(parameters))
        parameters = parameters - 2.0 * gradient(algorithm, parameters, score, batch, copies=copies)
    return torch.softmax(logits(parameters, torch.arange(prompts)), dim=-1)[..., 0].mean(dim=1)


def appeals(setting: Setting, *, checker_accepts_wrong: float) -> list[float]:
    """Smoothed estimate of a false negative rate of .2 after 50 updates, by seed; half of all are right."""
    found = []
    for seed in range(min(setting.num_seeds, 40)):
        generator, estimate = setting.generator(1000 + seed), None
        for _ in range(50):
            u = torch.rand(4, 1024, generator=generator)
            right = u[0] < 0.5
            accepted = right & (u[1] >= 0.2)
            appealed = ~accepted & (u[2] < 0.1)
            recovered = appealed & (right | (u[3] < checker_accepts_wrong))
            new = false_negative_rate(int(recovered.sum()), int(accepted.sum()), appeal_rate=0.1)
            estimate = smoothed(estimate, new, decay=0.9)
        assert estimate is not None
        found.append(estimate)
    return found


@dataclass(frozen=True, slots=True)
class Corrections:
    """Wrong mass [S] of each way to live with fpr .1, fnr .2, after 300, 1,000 and 3,000 steps."""

    by_arm: dict[str, Tensor]
    rescaled_gap: float


def corrections(setting: Setting) -> Corrections:
    """The corrections of 400 replicas; with `setting.quick` up to step 1,000."""
    checks = (0, 300, 1000) if setting.quick else (0, 300, 1000, 3000)
    noisy, clean = [(0.1, 0.2)], [(0.0, 0.0)]

    def run_one(
        arm: str, rates: Sequence[tuple[float, float]], lr: float = 0.1, tell: bool = False
    ) -> Tensor:
        return bandit(
            setting.algorithm(arm),
            rates,
            setting.generator(3),
            copies=setting.num_seeds,
            start=0.8,
            lr=lr,
            checks=checks,
            told=noisy if tell else None,
        )[:, 0]

    logits = {
        "clean": run_one("unscaled", clean),
        "uncorrected": run_one("unscaled", noisy),
        "backward": run_one("backward", noisy, tell=True),
        "forward": run_one("forward", noisy, tell=True),
        "scaled": run_one("scaled", noisy),
    }
    rescaled = run_one("unscaled", noisy, lr=0.1 / 0.7)
    gap = float((rescaled - logits["backward"]).abs().max())
    return Corrections({name: wrong_mass(value) for name, value in logits.items()}, gap)


def two_sources(setting: Setting) -> dict[str, Measured]:
    """Gap between two prompt families of different false negative rates, relative to no correction."""
    rates = [(0.0, 0.05), (0.0, 0.45)]

    def gap(arm: str, told: Sequence[tuple[float, float]] | None) -> Tensor:
        logits = bandit(
            setting.algorithm(arm),
            rates,
            setting.generator(4),
            copies=setting.num_seeds,
            start=0.8,
            lr=0.1,
            checks=(300,),
            told=told,
        )[0]
        mass = wrong_mass(logits)
        return (mass[1] - mass[0]).abs()

    plain = gap("unscaled", None)

    def ratio(a: Tensor, b: Tensor) -> float:
        return float(a.mean() / b.mean())

    return {
        "two_sources": bootstrapped(ratio, gap("backward", rates), plain, paired=True),
        "swapped_rates": bootstrapped(ratio, gap("backward", rates[::-1]), plain, paired=True),
    }


def refusals() -> float:
    """Share of the void combinations that the configuration refuses."""
    refused = 0
    for name in ("backward_noise", "forward_noise"):
        for scale in ("population_std", "sample_std"):
            try:
                AlgorithmConfig.model_validate({"name": name, "scale": scale})
            except ValidationError:
                refused += 1
    return refused / 4


def furthest(values: Sequence[Measured], distance: Callable[[Measured], float]) -> Measured:
    """The one for which the distance is largest."""
    return max(values, key=distance)


def run(setting: Setting) -> Findings:
    """The phase transition, then corrections, then their limits."""
    checks = (0, 50, 100, 200, 500, 1000, 2000)

    def curves(arm: str) -> Tensor:
        return wrong_mass(
            bandit(
                setting.algorithm(arm),
                CHANNELS,
                setting.generator(1),
                copies=setting.num_seeds,
                start=0.5,
                lr=0.05,
                checks=checks,
            )
        )

    mass = curves("scaled")  # [checks, channels, S]
    gain = [1 - a - b for a, b in CHANNELS]
    at = {step: index for index, step in enumerate(checks)}

    def fate(channel: int, size: int | None) -> list[float]:
        positive, negative = CHANNELS[channel]
        return predict(
            0.5,
            [float(c) for c in checks],
            false_positive_rate=positive,
            false_negative_rate=negative,
            rate=0.05,
            group_size=size,
        )

    predicted = [fate(c, SIZE) for c in range(len(CHANNELS))]
    large = [fate(c, None) for c in range(len(CHANNELS))]
    end = [over_seeds(mass[-1, c]) for c in range(len(CHANNELS))]
    still = CHANNELS.index((0.5, 0.5))

    def distance(index: int, channel: int, prediction: Sequence[Sequence[float]]) -> Measured:
        m = over_seeds(mass[index, channel] - prediction[channel][index])
        side = 1 if m.value >= 0 else -1
        low, high = sorted((side * m.low, side * m.high))
        return Measured(value=abs(m.value), low=low, high=high, num_seeds=m.num_seeds)

    moving = [c for c in range(len(CHANNELS)) if c != still]
    gaps = [distance(at[t], c, predicted) for t in (200, 2000) for c in moving]
    big_gaps = [distance(at[200], c, large) for c in moving]
    plain = curves("unscaled")
    same = [bool((plain[-1, c].mean() - 0.5) * (mass[-1, c].mean() - 0.5) > 0) for c in moving]

    ways = corrections(setting)
    at1000 = {name: value[2] for name, value in ways.by_arm.items()}
    keys = []
    for arm in ("unscaled", "backward_told", "forward_told"):
        shares = answers(setting, arm, (0.45, 0.1, 0.45), (0.8, 1.0, 0.0), steps=2000, lr=0.5)
        keys.append(over_seeds(shares[:, 1]))
    modes = answers(
        setting,
        "scaled",
        (0.15, 0.05, 0.3, 0.2, 0.2, 0.1),
        (0.8, 0.8, 0.2, 0.2, 0.2, 0.2),
        steps=4000,
        lr=0.05,
    )
    # recovered: .5 * .2 right and .2 of the .5 wrong; accepted .4
    biased = 0.2 / (0.2 + 0.4)

    measured: dict[str, Measured] = {
        "rate": furthest([end[c] for c in moving if gain[c] > 0], lambda m: m.value),
        "fate": furthest([end[c] for c in moving if gain[c] < 0], lambda m: -m.value),
        "neutral": over_seeds(mass[-1, still] - 0.5),
        "spread": bootstrapped(
            lambda a, b: float(a.std(ddof=1) / b.std(ddof=1)),
            mass[-1, still],
            mass[at[200], still],
            paired=True,
        ),
        "equation": furthest(gaps, lambda m: m.value),
        "large_group_equation": furthest(big_gaps, lambda m: m.value),
        "same_fate_unscaled": exact(sum(same) / len(same)),
        "backward_is_clean": over_seeds(at1000["backward"] - at1000["clean"]),
        "backward_is_a_rescale": exact(ways.rescaled_gap),
        "forward_is_uncorrected": over_seeds(at1000["forward"] - at1000["uncorrected"]),
        "refused": exact(refusals()),
        **two_sources(setting),
        "correlated_flips": furthest(keys, lambda m: -m.value),
        "master_key": over_seeds(master_key(setting)),
        "modes": over_seeds(modes[:, 0]),
        "appeals": over_seeds([e - 0.2 for e in appeals(setting, checker_accepts_wrong=0.0)]),
        "lenient_appeals": over_seeds([e - biased for e in appeals(setting, checker_accepts_wrong=0.2)]),
    }
    expected = [
        Expected(
            name=f"wrong mass at fpr {rates[0]}, fnr {rates[1]}, step {step}",
            value=NUMBERS[rates][i],
            tolerance=0.004 if rates != (0.5, 0.5) else 0.01,
            measured=over_seeds(mass[at[step], c]),
        )
        for c, rates in enumerate(CHANNELS)
        for i, step in enumerate((200, 2000))
    ]
    table = {
        "clean": (0.0531, 0.0116, 0.0035),
        "uncorrected": (0.0913, 0.0177, 0.0052),
        "backward": (0.0531, 0.0116, 0.0035),
        "forward": (0.0912, 0.0177, 0.0052),
        "scaled": (0.0337, 0.0077, 0.0024),
    }
    for name, row in table.items():
        for i, step in enumerate((300, 1000, 3000)[: len(ways.by_arm[name]) - 1]):
            m = over_seeds(ways.by_arm[name][i + 1])
            expected.append(
                Expected(name=f"wrong mass, {name}, step {step}", value=row[i], tolerance=0.0015, measured=m)
            )
    labels = [f"J = {gain[c]:.1f} ({a}, {b})" for c, (a, b) in enumerate(CHANNELS)]
    lines = []
    for c, label in enumerate(labels):
        lines.append(Line(name=label, x=checks, y=[float(m) for m in mass[:, c].mean(dim=1)]))
    lines += [
        Line(name="replicator equation" if c == 0 else "_", x=checks, y=predicted[c], dashed=True)
        for c in range(len(CHANNELS))
    ]
    steps = [0, 300, 1000, 3000][: len(ways.by_arm["clean"])]
    return Findings(
        measured=measured,
        expected=expected,
        panels=[
            Panel(title="Phase transition at J = 0", x="step", y="mass on wrong answers", lines=lines),
            Panel(
                title="Corrections at fpr .1, fnr .2",
                x="step",
                y="mass on wrong answers",
                log_y=True,
                lines=[
                    Line(name=name, x=steps, y=[float(m) for m in value.mean(dim=1)])
                    for name, value in ways.by_arm.items()
                ],
            ),
        ],
        notes=[
            "Backward correction at constant rates is a larger learning rate and nothing else: an "
            "optimizer that "
            "normalises its step (Adam) removes even that."
        ],
    )


STUDY = Study(
    name="noise",
    setup="Right or wrong by one logit; 8 rollouts per step, gradient descent at .05 (phase transition) or "
    ".1 "
    "(corrections, start .8 wrong); flips drawn per rollout.",
    source="arXiv:2601.04411, arXiv:2510.00915; the finite-group factor is ours",
    arms={
        "scaled": {"name": "grpo"},
        "unscaled": {"name": "rloo"},
        "backward": {"name": "backward_noise"},
        "forward": {"name": "forward_noise"},
        "backward_told": {
            "name": "backward_noise",
            "noise": {"false_positive_rate": 0.1, "false_negative_rate": 0.2},
        },
        "forward_told": {"name": "forward_noise", "noise": {"false_negative_rate": 0.2}},
    },
    claims=CLAIMS,
    run=run,
    seeds=400,
    quick_seeds=100,
)
