"""Held-out measurement: pass@1 and unbiased pass@k, with intervals over questions."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from peira.algorithms.passk import pass_at_k
from peira.config.run import EvaluationConfig
from peira.engines.protocol import Engine
from peira.pipeline.collect import collect_groups
from peira.pipeline.score import Judge, attempts_of
from peira.types.rollout import Group, SamplingParams
from peira.types.task import Task
from peira.types.tokenizer import Tokenizer
from peira.types.verdict import Verdict

RIGHT = 1.0 - 1e-9
"""A completion counts as right when its score reaches this: pass@k is about solving, not about part marks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over questions with its confidence interval."""

    value: float
    low: float
    high: float
    questions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What one question's completions came to, in one mode and channel."""

    task_id: str
    judged: int
    right: int
    unjudged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationResult:
    """Estimates by channel and name (`greedy`, `pass@1`, `pass@8`); unjudged completions counted apart."""

    policy_version: int
    estimates: Mapping[str, Mapping[str, Estimate]]
    unjudged: Mapping[str, int]
    """By channel: completions that no verdict exists for; they count neither as right nor as wrong."""
    completions: int
    tokens: int
    truncated: int
    questions: Mapping[str, tuple[Question, ...]]
    """By `channel/mode`, for drawing other statistics later."""

    @property
    def accuracy(self) -> Estimate | None:
        """The headline: greedy accuracy of the first channel, or its pass@1 without a greedy pass."""
        for by_name in self.estimates.values():
            for name in ("greedy", "pass@1"):
                if name in by_name:
                    return by_name[name]
        return None


async def evaluate(
    engine: Engine,
    tokenizer: Tokenizer,
    tasks: Sequence[Task],
    judge: Judge,
    settings: EvaluationConfig,
    *,
    max_tokens: int,
    stop_strings: tuple[str, ...] = (),
    stop_token_ids: tuple[int, ...] = (),
    seed: int,
    on_rollout: Callable[[int, int], None] | None = None,
) -> EvaluationResult:
    """Answer every question greedily, `settings.samples` times by sampling, or both; judge; estimate.

    The sampler must hold the weights to be measured. Questions are measured with the same prompt format,
    stop strings and token budget as training. A question without any judged completion is left out of an
    estimate and seen in `unjudged`.
    """
    chosen = list(tasks[: settings.max_questions] if settings.max_questions else tasks)
    base = SamplingParams(max_tokens=max_tokens, stop_strings=stop_strings, stop_token_ids=stop_token_ids)
    modes: dict[str, tuple[int, SamplingParams]] = {}
    if settings.greedy:
        modes["greedy"] = (1, replace(base, temperature=0.0))
    if settings.samples:
        sampled = replace(base, temperature=settings.temperature, top_p=settings.top_p, top_k=settings.top_k)
        modes["sampled"] = (settings.samples, sampled)

    estimates: dict[str, dict[str, Estimate]] = {}
    questions: dict[str, tuple[Question, ...]] = {}
    unjudged: dict[str, int] = {}
    completions = tokens = truncated = 0
    for mode, (samples, params) in modes.items():
        groups = await collect_groups(
            engine,
            tokenizer,
            chosen,
            group_size=samples,
            params=params,
            seed=seed,
            label=f"eval-{mode}",
            on_rollout=on_rollout,
        )
        verdicts = await judge(attempts_of(groups))
        for channel, rows in _by_question(groups, verdicts, samples).items():
            questions[f"{channel}/{mode}"] = tuple(rows)
            unjudged[channel] = unjudged.get(channel, 0) + sum(row.unjudged for row in rows)
            estimates.setdefault(channel, {}).update(_estimates(mode, rows, samples, settings))
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        completions += len(rollouts)
        tokens += sum(rollout.num_tokens for rollout in rollouts)
        truncated += sum(rollout.truncated for rollout in rollouts)
    return EvaluationResult(
        policy_version=engine.policy_version,
        estimates=estimates,
        unjudged=unjudged,
        completions=completions,
        tokens=tokens,
        truncated=truncated,
        questions=questions,
    )


def default_ks(samples: int) -> tuple[int, ...]:
    """1 and the powers of two up to half of `samples`: at k = n the estimator has no averaging left."""
    return tuple(2**i for i in range(max(1, int(math.log2(max(1, samples // 2))) + 1)))


def _by_question(
    groups: Sequence[Group], verdicts: Sequence[Mapping[str, Verdict]], samples: int
) -> dict[str, list[Question]]:
    by_channel: dict[str, list[Question]] = {}
    for i, group in enumerate(groups):
        own = verdicts[i * samples : (i + 1) * samples]
        for channel in {name for each in own for name in each}:
            seen = [each[channel] for each in own if channel in each]
            by_channel.setdefault(channel, []).append(
                Question(
                    task_id=group.task.id,
                    judged=sum(v.judged for v in seen),
                    right=sum(v.score is not None and v.score >= RIGHT for v in seen),
                    unjudged=sum(not v.judged for v in seen),
                )
            )
    return by_channel


def _estimates(
    mode: str, rows: Sequence[Question], samples: int, settings: EvaluationConfig
) -> dict[str, Estimate]:
    rows = [row for row in rows if row.judged]
    if not rows:
        return {}
    if mode == "greedy":
        return {"greedy": proportion([row.right for row in rows], settings.confidence)}
    ks = settings.ks or default_ks(samples)
    return {
        f"pass@{k}": mean_over_questions(
            [pass_at_k(row.judged, row.right, k) for row in rows if row.judged >= k], settings.confidence
        )
        for k in ks
        if any(row.judged >= k for row in rows)
    }


def proportion(right: Sequence[int], confidence: float) -> Estimate:
    """A share of questions with Wilson's interval (scipy's binomtest)."""
    interval = stats.binomtest(sum(right), len(right)).proportion_ci(confidence, method="wilson")
    return Estimate(value=sum(right) / len(right), low=interval.low, high=interval.high, questions=len(right))


def mean_over_questions(values: Sequence[float], confidence: float) -> Estimate:
    """A mean over questions with a BCa bootstrap interval that resamples questions.

    When every question has the same value a bootstrap sees no spread and would claim certainty; the interval
    is then Wilson's, as if each question were one trial.
    """
    data = np.asarray(values, dtype=np.float64)
    if len(data) < 2 or np.ptp(data) == 0:
        mean = float(data.mean())
        interval = stats.binomtest(round(mean * len(data)), len(data)).proportion_ci(
            confidence, method="wilson"
        )
        return Estimate(
            value=mean, low=min(mean, interval.low), high=max(mean, interval.high), questions=len(data)
        )
    result = stats.bootstrap(
        (data,), np.mean, confidence_level=confidence, method="BCa", rng=np.random.default_rng(0)
    )
    low, high = float(result.confidence_interval.low), float(result.confidence_interval.high)
    return Estimate(value=float(data.mean()), low=low, high=high, questions=len(data))
