"""Held-out measurement: accuracy, pass@1 and unbiased pass@k, with intervals over questions.

    tasks --greedy: one completion each---+
                                          +--> verdicts --> per question: judged, right --> estimates
    tasks --sampled: n completions each---+

A completion that no verdict exists for is neither right nor wrong: it is counted apart, and a question
without any judged completion is left out of the estimate.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from peira.algorithms.passk import pass_at_k
from peira.config.run import EvaluationConfig
from peira.engines.protocol import Engine
from peira.errors import DataError
from peira.pipeline.collect import collect_groups
from peira.pipeline.probe import GapAudit, hacking_gap, probe_worthless
from peira.pipeline.score import Judge, attempts_of
from peira.runs.evaluation import Estimate, EvalCompletion, EvalQuestion, EvalRecord
from peira.types.rollout import Group, SamplingParams
from peira.types.task import Task
from peira.types.tokenizer import Tokenizer
from peira.types.verdict import Verdict

MAX_PROBED = 16
"""Tasks that worthless attempts and held-out tests are tried on: a look, not a second evaluation."""
RIGHT = 1.0 - 1e-9
"""A completion counts as right when its score reaches this: pass@k is about solving, not about part marks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One question, its completions in one mode, and their verdicts."""

    group: Group
    verdicts: Sequence[Mapping[str, Verdict]]

    def counts(self, channel: str) -> tuple[int, int]:
        """(judged, right) completions under one verifier."""
        seen = [verdicts[channel] for verdicts in self.verdicts if channel in verdicts]
        return sum(v.judged for v in seen), sum(v.score is not None and v.score >= RIGHT for v in seen)


async def evaluate(
    engine: Engine,
    tokenizer: Tokenizer,
    tasks: Sequence[Task],
    judge: Judge,
    settings: EvaluationConfig,
    *,
    step: int,
    max_tokens: int,
    stop_strings: tuple[str, ...] = (),
    stop_token_ids: tuple[int, ...] = (),
    seed: int,
    audit: GapAudit | None = None,
    on_rollout: Callable[[int, int], None] | None = None,
) -> tuple[EvalRecord, list[EvalQuestion]]:
    """Answer every question greedily, `settings.samples` times by sampling, or both; judge; estimate.

    Estimates of the first verifier are called "accuracy" (greedy) and "pass_at_k"; those of further verifiers
    carry its name in front, as in "format:accuracy". The sampler must hold the weights to be measured.

    Beside the estimates the first verifier is shown worthless attempts, of which it should accept none; and
    where tasks have held-out tests, those of `MAX_PROBED` answers are run to see the hacking gap.

    Args:
        step: training steps taken so far, for the record.
        audit: compares visible with held-out tests; None when no verifier can.

    Raises:
        DataError: there is no question, neither greedy nor sampled completions were asked for, or not one
            completion could be judged.
    """
    started = time.monotonic()
    chosen = list(tasks[: settings.max_questions])
    if not chosen or not (settings.greedy or settings.samples):
        raise DataError(
            f"evaluation: {len(chosen)} questions, greedy = {settings.greedy}, samples = {settings.samples}: "
            "expected at least one question and one completion; set data.eval_path or "
            "data.held_out_fraction, and evaluation.greedy or evaluation.samples"
        )
    base = SamplingParams(max_tokens=max_tokens, stop_strings=stop_strings, stop_token_ids=stop_token_ids)
    modes: dict[str, tuple[int, SamplingParams]] = {}
    if settings.greedy:
        modes["greedy"] = (1, replace(base, temperature=0.0))
    if settings.samples:
        filters = {"temperature": settings.temperature, "top_p": settings.top_p, "top_k": settings.top_k}
        modes["sampled"] = (settings.samples, replace(base, **filters))  # type: ignore[arg-type]

    answered: dict[str, list[Answered]] = {}
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
        verdicts = list(await judge(attempts_of(groups)))
        answered[mode] = [
            Answered(group=group, verdicts=verdicts[i * samples : (i + 1) * samples])
            for i, group in enumerate(groups)
        ]

    rows = [row for mode in answered.values() for row in mode]
    channels = list(dict.fromkeys(name for row in rows for verdicts in row.verdicts for name in verdicts))
    estimates = {
        (name if channel == channels[0] else f"{channel}:{name}"): estimate
        for channel in channels
        for name, estimate in _estimates(answered, channel, settings)
    }
    if not estimates:
        raise DataError("evaluation: not one completion could be judged; see `peira verify` on one answer")
    first = channels[0]
    completions = sum(len(row.verdicts) for row in rows)
    observations, notes = await _observe(answered, chosen, judge, first, audit)
    record = EvalRecord(
        step=step,
        policy_version=engine.policy_version,
        headline=next(iter(estimates)),
        estimates=estimates,
        by_source=_by_source(answered, first, settings),
        confidence=settings.confidence,
        num_questions=len(chosen),
        num_completions=completions,
        num_unjudged=completions - sum(row.counts(first)[0] for row in rows),
        duration_s=time.monotonic() - started,
        settings={**settings.model_dump(), "max_tokens": max_tokens, "seed": seed},
        observations=observations,
        notes=notes,
    )
    return record, [_question(i, answered, first) for i in range(len(chosen))]


async def _observe(
    answered: Mapping[str, Sequence[Answered]],
    tasks: Sequence[Task],
    judge: Judge,
    channel: str,
    audit: GapAudit | None,
) -> tuple[dict[str, float], tuple[str, ...]]:
    """What is seen beside the estimates: worthless attempts accepted, and the hacking gap."""
    observations: dict[str, float] = {}
    notes: list[str] = []
    worthless = await probe_worthless(judge, tasks[:MAX_PROBED], channel)
    if worthless.tried:
        observations["verifier/worthless_accepted_fraction"] = worthless.accepted / worthless.tried
    if worthless.accepted:
        notes.append(
            f"verifier {channel}: accepted {worthless.accepted} of {worthless.tried} worthless attempts, for "
            f"example {worthless.example[:80]!r}: a policy will find it; see `peira verify --check`"
        )
    if audit is not None:
        first_mode = next(iter(answered.values()))
        gap = await hacking_gap(audit, [row.group for row in first_mode[:MAX_PROBED]])
        if gap is not None:
            observations |= {
                "hacking/visible_percent": gap.visible,
                "hacking/heldout_percent": gap.heldout,
                "hacking/gap_points": gap.gap,
                "hacking/flagged_fraction": gap.flagged,
            }
    return observations, tuple(notes)


def default_ks(samples: int) -> tuple[int, ...]:
    """1 and the powers of two up to half of `samples`: at k = n the estimator has no averaging left."""
    return tuple(2**i for i in range(int(math.log2(max(1, samples // 2))) + 1))


def _estimates(
    answered: Mapping[str, Sequence[Answered]], channel: str, settings: EvaluationConfig
) -> Iterator[tuple[str, Estimate]]:
    greedy = [counts for row in answered.get("greedy", ()) if (counts := row.counts(channel))[0]]
    if greedy:
        yield "accuracy", proportion([right for _, right in greedy], settings.confidence)
    sampled = [row.counts(channel) for row in answered.get("sampled", ())]
    for k in settings.ks or default_ks(settings.samples):
        values = [pass_at_k(judged, right, k) for judged, right in sampled if judged >= k]
        if values:
            yield f"pass_at_{k}", mean_over_questions(values, settings.confidence)


def _by_source(
    answered: Mapping[str, Sequence[Answered]], channel: str, settings: EvaluationConfig
) -> dict[str, Estimate]:
    sources = {row.group.task.source for rows in answered.values() for row in rows}
    found = {}
    for source in sorted(sources) if len(sources) > 1 else ():
        own = {
            mode: [row for row in rows if row.group.task.source == source] for mode, rows in answered.items()
        }
        estimates = list(_estimates(own, channel, settings))
        if estimates:
            found[source] = estimates[0][1]
    return found


def _question(index: int, answered: Mapping[str, Sequence[Answered]], headline: str) -> EvalQuestion:
    task = next(iter(answered.values()))[index].group.task
    return EvalQuestion(
        task_id=task.id,
        source=task.source,
        prompt=task.prompt,
        answer=task.answer,
        completions=tuple(
            EvalCompletion(
                text=rollout.text,
                scores={name: verdict.score for name, verdict in verdicts.items()},
                status={name: verdict.status.value for name, verdict in verdicts.items()},
                detail={name: verdict.detail for name, verdict in verdicts.items()},
                right=_right(verdicts.get(headline)),
                num_tokens=rollout.num_tokens,
                stop_reason=rollout.stop_reason.value,
                sampled=mode == "sampled",
            )
            for mode, rows in answered.items()
            for rollout, verdicts in zip(rows[index].group.rollouts, rows[index].verdicts, strict=True)
        ),
    )


def _right(verdict: Verdict | None) -> bool | None:
    return None if verdict is None or verdict.score is None else verdict.score >= RIGHT


def proportion(right: Sequence[int], confidence: float) -> Estimate:
    """A share of questions with Wilson's interval."""
    interval = stats.binomtest(sum(right), len(right)).proportion_ci(confidence, method="wilson")
    return Estimate(
        value=sum(right) / len(right),
        low=float(interval.low),
        high=float(interval.high),
        num_questions=len(right),
    )


def mean_over_questions(values: Sequence[float], confidence: float) -> Estimate:
    """A mean over questions with a BCa bootstrap interval that resamples questions.

    When every question has the same value a bootstrap sees no spread and would claim certainty; the interval
    is then Wilson's, as if each question were one trial.
    """
    data = np.asarray(values, dtype=np.float64)
    mean = float(data.mean())
    if np.ptp(data) == 0:
        trials = stats.binomtest(round(mean * len(data)), len(data))
        interval = trials.proportion_ci(confidence, method="wilson")
        low, high = min(mean, interval.low), max(mean, interval.high)
    else:
        interval = stats.bootstrap(
            (data,), np.mean, confidence_level=confidence, method="BCa", rng=np.random.default_rng(0)
        ).confidence_interval
        low, high = interval.low, interval.high
    return Estimate(value=mean, low=float(low), high=float(high), num_questions=len(data))
