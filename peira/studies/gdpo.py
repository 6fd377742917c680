"""Several rewards of different size: sum first, or normalise first.

Each of 32 prompts has 32 answers: 4 formats x 8 contents. The format pays 0 or 1, the content -3 or 3. Summed
and then compared within the group, the small reward hardly ranks anybody; compared channel by channel (GDPO)
both count alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from peira.algorithms.family import StepContext
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
from peira.studies.table import advantages, draw, gradient, train_batch

PROMPTS, PER_STEP, SIZE, LR = 32, 16, 4, 0.3
FORMATS, CONTENTS = 4, 8
CONTENT = (-3.0, 3.0)
WEIGHTS = (1.0, 2.0, 3.0, 6.0, 12.0)
"""Of the format, tried for GRPO."""

CLAIMS = (
    Claim(
        name="gdpo",
        text="GDPO learns the small reward.",
        how="share of right formats after 300 steps",
        at_least=0.9,
    ),
    Claim(
        name="grpo",
        text="GRPO on the sum hardly does.",
        how="the same",
        at_most=0.6,
    ),
    Claim(
        name="unscaled",
        text="Without the group's std it does even less.",
        how="the same",
        at_most=0.5,
    ),
    Claim(
        name="content",
        text="None of them loses the large reward.",
        how="smallest share of right contents over the three, after 300 steps",
        at_least=0.9,
    ),
    Claim(
        name="whitening",
        text="Whitening over the step is what makes the difference.",
        how="right formats, GDPO minus GDPO without its last part",
        at_least=0.05,
    ),
    Claim(
        name="more_than_scale",
        text="The gain is more than a repair of unequal scales: it stays when both rewards are 0 or 1.",
        how="right formats at equal scales, GDPO minus GRPO, after 100 steps (before both have learnt all)",
        at_least=0.05,
    ),
    Claim(
        name="no_weight_helps",
        text="No weight on the small reward does the same for GRPO.",
        how="smaller of right formats and right contents after 300 steps: GDPO minus the best of format "
        "weights "
        "1, 2, 3, 6, 12",
        at_least=0.05,
    ),
    Claim(
        name="separate_decisions",
        text="The gap is as large when format and content are two decisions, not one.",
        how="right formats after 300 steps, GDPO minus GRPO, with one table per decision",
        at_least=0.3,
    ),
    Claim(
        name="cancellation",
        text="It does not rescue channels that add up to a constant: equal weights cancel.",
        how="largest advantage of the group (1,1,0) / (0,0,1)",
        at_most=1e-5,
    ),
)
NUMBERS = {
    "grpo": {200: (0.381, 0.761), 300: (0.490, 0.946)},
    "unscaled": {200: (0.399, 0.989), 300: (0.400, 0.994)},
    "gdpo": {200: (0.915, 0.886), 300: (0.981, 0.974)},
    "no_whitening": {200: (0.920, 0.890), 300: (0.972, 0.961)},
}
"""Right formats and contents by an independent simulation of 6 seeds."""


@dataclass(frozen=True, slots=True)
class Course:
    """Shares of right formats and contents, [steps + 1, S]."""

    formats: Tensor
    contents: Tensor

    @property
    def weaker(self) -> Tensor:
        """The smaller of the two at the end, [S]."""
        return torch.minimum(self.formats[-1], self.contents[-1])


def train(
    setting: Setting,
    arm: str,
    *,
    steps: int = 300,
    content: tuple[float, float] = CONTENT,
    weight: float = 1.0,
    heads: Sequence[int] = (FORMATS * CONTENTS,),
) -> Course:
    """All copies at once; whitening sees the whole step of one copy and nothing of the others.

    Args:
        content: reward of a wrong and of a right content.
        weight: of the format's reward, in the sum or in the channels.
        heads: sizes of the decisions an answer consists of: one of 32, or one of 4 and one of 8.
    """
    copies = setting.num_seeds
    weights: Mapping[str, float] = {"format": weight, "content": 1.0}
    algorithm, generator = setting.algorithm(arm, channels=weights), setting.generator(5)
    whole_step = setting.arms[arm].whiten != "none"
    shape = (copies, PROMPTS, sum(heads))
    logits = 0.2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    rows = torch.arange(copies)[:, None]
    formats, contents = [], []
    for step in range(steps + 1):
        right = shares(logits, heads)
        formats.append(right[0])
        contents.append(right[1])
        if step == steps:
            break
        order = torch.rand(copies, PROMPTS, generator=generator).argsort(dim=1)[:, :PER_STEP]  # [S, P]
        chosen = [draw(table, SIZE, generator) for table in logits[rows, order].split(tuple(heads), dim=-1)]
        first = (chosen[0] // CONTENTS if len(heads) == 1 else chosen[0]) == 0
        second = (chosen[0] % CONTENTS if len(heads) == 1 else chosen[1]) == 0
        pay = torch.where(second, content[1], content[0]).double()
        channels = torch.stack([first.double(), pay], dim=-1)  # [S, P, G, 2]
        rewards = weight * first.double() + pay
        if whole_step:
            judged = torch.ones(PER_STEP, SIZE, dtype=torch.bool)
            each = [
                algorithm.advantages(rewards[s], judged, context=StepContext(channels=channels[s]))
                for s in range(copies)
            ]
            a = torch.stack(each)
        else:
            a = advantages(algorithm, rewards, context=StepContext(channels=channels.reshape(-1, SIZE, 2)))

        def score(table: Tensor, order: Tensor = order, chosen: Sequence[Tensor] = tuple(chosen)) -> Tensor:
            parts = table[rows, order].split(tuple(heads), dim=-1)
            tokens = [
                torch.log_softmax(part, dim=-1).gather(-1, arms)
                for part, arms in zip(parts, chosen, strict=True)
            ]
            return torch.stack(tokens, dim=-1).reshape(-1, len(heads))

        batch = train_batch(a.reshape(-1, 1), old=score(logits))
        # every prompt is a table of its own: each averages over its own rollouts
        logits = logits - LR * gradient(algorithm, logits, score, batch, copies=copies * PER_STEP)
    return Course(torch.stack(formats), torch.stack(contents))


def shares(logits: Tensor, heads: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Shares of right formats and of right contents, averaged over prompts, [S] each."""
    if len(heads) == 1:
        joint = torch.softmax(logits, dim=-1).unflatten(-1, (FORMATS, CONTENTS))
        return joint[..., 0, :].sum(dim=-1).mean(dim=1), joint[..., 0].sum(dim=-1).mean(dim=1)
    form, cont = logits.split(tuple(heads), dim=-1)
    return torch.softmax(form, dim=-1)[..., 0].mean(dim=1), torch.softmax(cont, dim=-1)[..., 0].mean(dim=1)


def cancelled(setting: Setting) -> float:
    """Largest advantage of three rollouts whose two rewards add up to one."""
    algorithm = setting.algorithm("no_whitening", channels={"a": 1.0, "b": 1.0})
    channels = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]], dtype=torch.float64)
    judged = torch.ones(1, 3, dtype=torch.bool)
    found = algorithm.advantages(channels.sum(dim=-1), judged, context=StepContext(channels=channels))
    return float(found.abs().max())


def run(setting: Setting) -> Findings:
    """The four arms, then the two controls."""
    courses = {arm: train(setting, arm) for arm in NUMBERS}
    equal = {arm: train(setting, arm, steps=100, content=(0.0, 1.0)) for arm in ("grpo", "gdpo")}
    apart = {arm: train(setting, arm, heads=(FORMATS, CONTENTS)) for arm in ("grpo", "gdpo")}
    tuned = {w: train(setting, "grpo", weight=w) for w in WEIGHTS[1:]} | {1.0: courses["grpo"]}
    best = max(tuned, key=lambda w: float(tuned[w].weaker.mean()))

    def formats(arm: str) -> Measured:
        return over_seeds(courses[arm].formats[-1])

    smallest = min(
        (over_seeds(courses[arm].contents[-1]) for arm in ("grpo", "unscaled", "gdpo")), key=lambda m: m.value
    )
    measured = {
        "gdpo": formats("gdpo"),
        "grpo": formats("grpo"),
        "unscaled": formats("unscaled"),
        "content": smallest,
        "whitening": over_seeds(courses["gdpo"].formats[-1] - courses["no_whitening"].formats[-1]),
        "more_than_scale": over_seeds(equal["gdpo"].formats[-1] - equal["grpo"].formats[-1]),
        "no_weight_helps": over_seeds(courses["gdpo"].weaker - tuned[best].weaker),
        "separate_decisions": over_seeds(apart["gdpo"].formats[-1] - apart["grpo"].formats[-1]),
        "cancellation": exact(cancelled(setting)),
    }
    expected = [
        Expected(
            name=f"right {what}s, {arm}, step {step}",
            value=row[i],
            tolerance=0.03,
            measured=over_seeds((courses[arm].formats, courses[arm].contents)[i][step]),
        )
        for arm, by_step in NUMBERS.items()
        for step, row in by_step.items()
        for i, what in enumerate(("format", "content"))
    ]
    every = list(range(0, 301, 5))
    titles = (("formats (reward 0 or 1)", "formats"), ("contents (reward -3 or 3)", "contents"))
    panels = [
        Panel(
            title=f"Right {title}",
            x="step",
            y="share",
            lines=[
                Line(name=arm, x=every, y=[float(getattr(course, key)[t].mean()) for t in every])
                for arm, course in courses.items()
            ],
        )
        for title, key in titles
    ]
    panels.append(
        Panel(
            title="GRPO by weight of the format: the weaker reward",
            x="smaller of right formats and contents",
            y="",
            bars={f"weight {w:g}": over_seeds(tuned[w].weaker) for w in WEIGHTS}
            | {"gdpo": over_seeds(courses["gdpo"].weaker)},
        )
    )
    return Findings(
        measured=measured,
        expected=expected,
        panels=panels,
        notes=[
            f"The best of GRPO's format weights is {best:g}. At equal scales after 100 steps: right formats "
            f"{float(equal['grpo'].formats[-1].mean()):.3f} with GRPO, "
            f"{float(equal['gdpo'].formats[-1].mean()):.3f} with GDPO.",
            "With one table per decision a right format is reinforced under every content, and GRPO learns "
            "it too: "
            "the starvation belongs to policies in which the two are entangled.",
        ],
    )


STUDY = Study(
    name="gdpo",
    setup="32 prompts with a table over 4 formats x 8 contents each, logits N(0, .2) at the start; 16 per "
    "step x 4 rollouts, rewards 0 / 1 and "
    "-3 / 3, gradient descent at rate .3 per prompt, 300 steps.",
    source="arXiv:2601.05242; the toy is ours",
    arms={
        "grpo": {"name": "grpo", "scale": "sample_std", "average": "sequence_sum"},
        "unscaled": {"name": "grpo", "scale": "none", "average": "sequence_sum"},
        "gdpo": {"name": "gdpo", "average": "sequence_sum"},
        "no_whitening": {"name": "gdpo", "whiten": "none", "average": "sequence_sum"},
    },
    claims=CLAIMS,
    run=run,
    seeds=12,
    quick_seeds=4,
)
