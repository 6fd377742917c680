"""The leave-one-out policy gradient is a U-statistic.

With s_i the score (gradient of the log-prob) and z_i the reward of rollout i, leave-one-out advantages give
the mean over pairs of (s_i - s_j)(z_i - z_j) / 2: the sample covariance of score and reward. Its variance
is then known in closed form, and is that of the best constant baseline up to a term of order 1 / G^2.
"""

import math
from itertools import pairwise

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
    exact,
    over_seeds,
)
from peira.studies.table import advantages, draw, gradient, scorer_of, train_batch

SIZES = (2, 4, 8, 16, 64)
SUCCESS = (0.2, 0.5)
POPULATION = (0.3, 0.4, 0.5)

CLAIMS = (
    Claim(
        name="identity",
        text="The leave-one-out gradient is the U-statistic over pairs, and the sample covariance.",
        how="16 prompts x 8 rollouts of a softmax policy with random real rewards; largest difference "
        "between autograd through the loss and both formulas, prompt by prompt",
        at_most=1e-10,
    ),
    Claim(
        name="variance",
        text="Its variance is (2 / (G (G - 1))) (2 (G - 2) z1 + z2).",
        how="Bernoulli policy, p = .2 and .5, G = 2 ... 64, 1e5 groups per cell; largest gap to the "
        "formula in "
        "standard errors (above 3.9 by chance once in a thousand)",
        at_most=3.9,
    ),
    Claim(
        name="oracle",
        text="At G = 16 it costs less than a tenth more variance than the oracle baseline (p = .2).",
        how="variance of leave-one-out / variance with the true success rate as baseline",
        at_most=1.1,
    ),
    Claim(
        name="falls",
        text="That ratio falls with every doubling of G.",
        how="share of neighbouring group sizes, all seeds together, at which the ratio falls",
        at_least=1.0,
    ),
    Claim(
        name="vanilla",
        text="Without a baseline the variance stays 1.78 times the oracle's at every G.",
        how="smallest and largest ratio over G: the one further from 1.78",
        at_least=1.7,
        at_most=1.86,
    ),
    Claim(
        name="small_groups",
        text="At G = 2 the leave-one-out baseline is worse than none.",
        how="variance of leave-one-out / variance without a baseline, p = .2",
        at_least=1.0,
    ),
    Claim(
        name="optimum",
        text="For a fixed budget the best group size is where sqrt(c3 / c1) says: 19.5, so 20.",
        how="group size of least error by enumeration, prompts of p = .3, .4, .5",
        at_least=19,
        at_most=20,
    ),
)


def formula(p: float, size: int) -> float:
    """Variance of the leave-one-out gradient by the logit of a Bernoulli policy with reward 1 on success."""
    oracle = p * (1 - p) ** 4 + (1 - p) * p**4 - (p * (1 - p)) ** 2
    pair = p * (1 - p) / 2 - (p * (1 - p)) ** 2
    return 2 / (size * (size - 1)) * (2 * (size - 2) * oracle / 4 + pair)


def identity_error(algorithm: Algorithm, generator: torch.Generator) -> float:
    """Largest difference between autograd, the pair kernel and the covariance, over prompts and logits."""
    prompts, size, arms = 16, 8, 5
    logits = torch.randn(prompts, arms, generator=generator, dtype=torch.float64)
    chosen = draw(logits, size, generator)
    rewards = torch.randn(prompts, size, generator=generator, dtype=torch.float64)
    a = advantages(algorithm, rewards)
    score = scorer_of(chosen)
    batch = train_batch(a.flatten(), old=score(logits))
    own = -gradient(algorithm, logits, score, batch, copies=prompts)  # [P, V], each prompt its own mean

    scores = (
        torch.eye(arms, dtype=torch.float64)[chosen] - torch.softmax(logits, dim=-1)[:, None]
    )  # [P, G, V]
    pairs = torch.zeros_like(own)
    for i in range(size):
        for j in range(i):
            gap = (rewards[:, i] - rewards[:, j])[:, None]
            pairs += (scores[:, i] - scores[:, j]) * gap / 2
    pairs *= 2 / (size * (size - 1))
    centred = rewards - rewards.mean(dim=1, keepdim=True)
    covariance = torch.einsum("pg,pgv->pv", centred, scores) / (size - 1)
    return float(max((own - pairs).abs().max(), (own - covariance).abs().max()))


def estimates(algorithm: Algorithm, right: Tensor, p: float) -> Tensor:
    """[S, M, G] successes -> gradient by the logit of each group, [S, M]."""
    a = advantages(algorithm, right)
    return (a * (right - p)).mean(dim=-1)


def variances(setting: Setting, p: float, size: int) -> dict[str, Tensor]:
    """Variance of each estimator's gradient by seed, [S], over 1e5 groups shared out among the seeds."""
    groups = math.ceil((20_000 if setting.quick else 100_000) / setting.num_seeds)
    generator = setting.generator(size)
    uniforms = torch.rand(setting.num_seeds, groups, size, generator=generator, dtype=torch.float64)
    right = (uniforms < p).double()
    plain, oracle = right, right - p
    return {
        "loo": estimates(setting.algorithm("loo"), right, p).var(dim=1),
        "oracle": (oracle * (right - p)).mean(dim=-1).var(dim=1),
        "vanilla": (plain * (right - p)).mean(dim=-1).var(dim=1),
    }


def enumerated_error(algorithm: Algorithm, size: int, budget: int) -> float:
    """Mean squared error of the gradient over a population of prompts, budget / size of them drawn."""
    means, spreads = [], []
    for p in POPULATION:
        count = torch.arange(size + 1, dtype=torch.float64)
        right = (torch.arange(size)[None] < count[:, None]).double()  # k successes, [G + 1, G]
        chance = (
            torch.distributions.Binomial(size, torch.tensor(p, dtype=torch.float64)).log_prob(count).exp()
        )
        found = estimates(algorithm, right[None], p)[0]
        mean = float((chance * found).sum())
        means.append(mean)
        spreads.append(float((chance * (found - mean) ** 2).sum()))
    between = torch.tensor(means, dtype=torch.float64).var(correction=0)
    return float(between + torch.tensor(spreads, dtype=torch.float64).mean()) / (budget / size)


def run(setting: Setting) -> Findings:
    """All claims of the U-statistic view."""
    loo = setting.algorithm("loo")
    errors = [identity_error(loo, setting.generator(seed)) for seed in range(setting.num_seeds)]

    found = {(p, g): variances(setting, p, g) for p in SUCCESS for g in SIZES}
    gaps = {}
    for (p, g), by_name in found.items():
        mean = over_seeds(by_name["loo"]).value
        deviation = max(float(by_name["loo"].std()) / math.sqrt(setting.num_seeds), 1e-12)
        gaps[p, g] = abs(mean - formula(p, g)) / deviation
    ratios = {g: found[0.2, g]["loo"] / found[0.2, g]["oracle"] for g in SIZES}
    pooled = [float(ratios[g].mean()) for g in SIZES]
    falls = sum(b < a for a, b in pairwise(pooled)) / (len(SIZES) - 1)
    vanilla = [over_seeds(found[0.2, g]["vanilla"] / found[0.2, g]["oracle"]) for g in SIZES]

    sizes = range(2, 65)
    error = {g: enumerated_error(loo, g, 4096) for g in sizes}
    best = min(sizes, key=error.__getitem__)
    measured: dict[str, Measured] = {
        "identity": exact(max(errors)),
        "variance": exact(max(gaps.values())),
        "oracle": over_seeds(ratios[16]),
        "falls": exact(falls),
        "vanilla": max(vanilla, key=lambda m: abs(m.value - 16 / 9)),
        "small_groups": over_seeds(found[0.2, 2]["loo"] / found[0.2, 2]["vanilla"]),
        "optimum": exact(best),
    }
    table = {2: 0.0544, 4: 0.018667, 8: 0.008114, 16: 0.003813, 64: 0.000913}
    return Findings(
        measured=measured,
        expected=[
            Expected(
                name=f"variance of leave-one-out, p = .2, G = {g}, x 1000",
                value=1000 * v,
                tolerance=0.0005,
                measured=over_seeds(1000 * found[0.2, g]["loo"]),
            )
            for g, v in table.items()
        ],
        panels=[
            Panel(
                title="Variance relative to the oracle baseline, p = .2",
                x="rollouts per prompt",
                y="ratio",
                log_x=True,
                lines=[
                    Line(name="leave-one-out", x=SIZES, y=pooled),
                    Line(
                        name="leave-one-out, formula",
                        x=SIZES,
                        y=[formula(0.2, g) * g / 0.0576 for g in SIZES],
                        dashed=True,
                    ),
                    Line(name="no baseline", x=SIZES, y=[m.value for m in vanilla]),
                ],
            ),
            Panel(
                title="Error of the gradient at 4,096 rollouts, p in {.3, .4, .5}",
                x="rollouts per prompt",
                y="mean squared error",
                lines=[
                    Line(name="enumerated", x=list(sizes), y=list(error.values())),
                ],
            ),
        ],
        notes=[
            "The error at N rollouts is (between-prompt variance + within-group variance) G / N: the best "
            "group "
            "size cannot depend on N, by algebra. Its minimum is flat; do not read it off noisy runs."
        ],
    )


STUDY = Study(
    name="ustat",
    setup="Bernoulli and softmax policies; gradients by autograd through the built loss, by enumeration, and "
    "by sampling.",
    source="arXiv:2603.01162; variance formula and group sizes re-derived",
    arms={"loo": {"name": "rloo"}},
    claims=CLAIMS,
    run=run,
    seeds=20,
    quick_seeds=10,
)
