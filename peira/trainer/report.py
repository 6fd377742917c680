"""One step as numbers: the metrics of `runs/metrics.py`."""

import re
import resource
import sys
from collections.abc import Iterable, Mapping, Sequence

import torch

from peira.algorithms.diagnostics import group_metrics, length_metrics, mismatch_metrics, policy_metrics
from peira.config.run import RunConfig
from peira.engines.protocol import SyncReceipt
from peira.runs.evaluation import EvalRecord
from peira.runs.metrics import metric_name
from peira.trainer.learn import Update
from peira.trainer.step import StepResult
from peira.types.scored import ScoredRollout
from peira.types.verdict import Verdict, VerdictStatus


def step_metrics(result: StepResult, run: RunConfig, receipt: SyncReceipt) -> dict[str, float | None]:
    """Everything that is written about a step but the times that come after it."""
    rollouts = [member for group in result.groups for member in group.rollouts]
    lengths = torch.tensor([member.rollout.num_tokens for member in rollouts])
    return {
        **group_metrics(
            result.outcomes,
            result.rewards,
            result.judged,
            result.advantages,
            truncated=result.truncated,
            duplicate=result.duplicate,
        ),
        **length_metrics(lengths, result.truncated.flatten()),
        "rollout/prompt_tokens_mean": _mean(
            len(group.rollouts[0].rollout.turns[0].prompt_ids) for group in result.groups
        ),
        "advantage/groups": len(result.groups),
        "advantage/refills": result.refills,
        "mismatch/stale_fraction": (
            None if run.algorithm.mismatch.max_lag is None else float(result.stale.double().mean())
        ),
        **_update_metrics(result.updates, run),
        **_verifier_metrics(rollouts),
        **_source_metrics(result),
        **result.observations,
        **habit_metrics(rollouts, run.logging.habits),
        "sync/canary_gap_nats": receipt.canary_gap,
        "sync/version": receipt.policy_version,
        "sync/size_bytes": receipt.size_bytes,
        "time/sample_s": result.seconds.get("sample", 0.0),
        "time/score_s": result.seconds.get("score", 0.0),
        "time/pack_s": result.seconds.get("pack", 0.0),
        "time/learn_s": result.seconds.get("learn", 0.0),
        "time/sync_s": receipt.duration_s,
        "throughput/generated_tokens_per_s": float(lengths.sum()) / max(result.seconds["sample"], 1e-9),
        "throughput/trained_tokens_per_s": (
            sum(update.tokens for update in result.updates) / max(result.seconds["learn"], 1e-9)
            if result.updates
            else None
        ),
        "memory/peak_bytes": peak_memory_bytes(),
    }


def eval_metrics(record: EvalRecord) -> dict[str, float | None]:
    """An evaluation's estimates, the headline with its interval."""
    headline = record.headline_estimate
    return {
        **{
            metric_name("eval/<metric>", metric=name): estimate.value
            for name, estimate in record.estimates.items()
        },
        "eval/accuracy": headline.value,
        "eval/accuracy_low": headline.low,
        "eval/accuracy_high": headline.high,
    }


def peak_memory_bytes() -> int:
    """Largest resident set of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _update_metrics(updates: list[Update], run: RunConfig) -> dict[str, float | None]:
    """Means over the step's optimizer steps; the mismatch is that of the first, before weights moved."""
    metrics: dict[str, float | None] = {"policy/updates": len(updates)}
    if not updates:
        return metrics
    seen: list[Mapping[str, float]] = [
        policy_metrics(
            update.logprobs,
            update.batch.old_logprobs,
            update.batch.advantages,
            update.batch.mask,
            entropy=update.entropy,
            clip_low=run.algorithm.clip_low,
            clip_high=run.algorithm.clip_high,
            reference_logprobs=update.batch.reference_logprobs,
            other_reference_logprobs=update.batch.other_reference_logprobs,
            level="sequence" if run.algorithm.loss == "gspo" else "token",
        )
        for update in updates
    ]
    for name in seen[0]:
        values = [each[name] for each in seen if name in each]
        metrics[name] = max(values) if name.endswith("_max") else _mean(values)
    first = updates[0]
    metrics |= mismatch_metrics(
        first.logprobs,
        first.batch.sampling_logprobs,
        first.batch.mask,
        weights=first.batch.mismatch_weights,
        level=run.algorithm.mismatch.level,
    )
    metrics["policy/loss"] = _mean(update.loss for update in updates)
    metrics["policy/anchor_loss"] = _mean(u.anchor_loss for u in updates if u.anchor_loss is not None)
    metrics["policy/grad_norm"] = _mean(update.grad_norm for update in updates)
    metrics["policy/lr"] = updates[-1].lr
    return metrics


def _verifier_metrics(rollouts: list[ScoredRollout]) -> dict[str, float | None]:
    by_channel: dict[str, list[Verdict]] = {}
    for member in rollouts:
        for channel, verdict in member.verdicts.items():
            by_channel.setdefault(channel, []).append(verdict)
    verdicts = [verdict for seen in by_channel.values() for verdict in seen]
    metrics: dict[str, float | None] = {
        metric_name("score/<channel>", channel=channel): _mean(
            verdict.score for verdict in seen if verdict.score is not None
        )
        for channel, seen in by_channel.items()
    }
    metrics["verifier/unjudged_fraction"] = unjudged_fraction(rollouts)
    for status in VerdictStatus:
        if status is not VerdictStatus.SCORED:
            share = sum(verdict.status is status for verdict in verdicts) / max(len(verdicts), 1)
            metrics[f"verifier/{status.value}_fraction"] = share
    metrics["verifier/flagged_fraction"] = sum(bool(v.flags) for v in verdicts) / max(len(verdicts), 1)
    return metrics


def unjudged_fraction(rollouts: list[ScoredRollout]) -> float:
    """Share of rollouts without a verdict that counts; those masked on purpose are not among them."""
    missing = sum(r.reward is None and r.excluded != "masked_truncated" for r in rollouts)
    return missing / max(len(rollouts), 1)


def habit_metrics(rollouts: Sequence[ScoredRollout], habits: Mapping[str, str]) -> dict[str, float | None]:
    """Share of completions in which each pattern is found, judged or not."""
    return {
        metric_name("habit/<name>_fraction", name=name): _mean(
            re.search(pattern, member.rollout.text, re.DOTALL) is not None for member in rollouts
        )
        for name, pattern in habits.items()
    }


def _source_metrics(result: StepResult) -> dict[str, float | None]:
    by_source: dict[str, list[float]] = {}
    for group in result.groups:
        rewards = [member.reward for member in group.rollouts if member.reward is not None]
        by_source.setdefault(group.task.source, []).extend(rewards)
    if len(by_source) < 2:
        return {}
    return {
        metric_name("reward/source/<source>", source=source): _mean(values)
        for source, values in by_source.items()
    }


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return sum(known) / len(known) if known else None
