"""Every metric name, with its unit, its meaning and the range in which a healthy run keeps it.

A name in angle brackets is filled in: `score/<channel>` is recorded as `score/math`. A name that is not
listed raises, so that no chart is ever split between two spellings. docs/metrics.md is made from this table.
"""

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from peira.errors import RunError

_PLACE = re.compile(r"<(\w+)>")
_PART = re.compile(r"[^A-Za-z0-9_.:-]+")
RESERVED = ("step", "time")
"""Keys of a metrics line that are not metrics: the step, and the Unix time at which it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What a number in `metrics.jsonl` means."""

    name: str
    unit: str
    """"" for a pure number; "fraction" lies in [0, 1]."""
    meaning: str
    low: float | None = None
    """Below this, look."""
    high: float | None = None
    """Above this, look."""

    def healthy(self, value: float) -> bool:
        """Whether the value lies in the range; a number that is not finite never does."""
        return math.isfinite(value) and not (
            (self.low is not None and value < self.low) or (self.high is not None and value > self.high)
        )


_METRICS = [
    Metric(
        name="reward/mean",
        unit="reward",
        meaning="Mean reward of the judged rollouts of the step: all groups, before any is dropped.",
    ),
    Metric(
        name="reward/std",
        unit="reward",
        meaning="Population standard deviation of the same rewards.",
    ),
    Metric(
        name="reward/outcome_mean",
        unit="reward",
        meaning="Mean of the weighted scores before shaping: what the verifiers said, without penalties.",
    ),
    Metric(
        name="reward/right_fraction",
        unit="fraction",
        meaning="Judged rollouts whose outcome is that of a right answer.",
    ),
    Metric(
        name="reward/judged_fraction",
        unit="fraction",
        meaning="Rollouts that have a reward, of all generated.",
        low=0.98,
    ),
    Metric(
        name="reward/shaping/<name>",
        unit="reward",
        meaning="Mean of what this term (an overlong penalty, say) added to the rewards.",
    ),
    Metric(
        name="reward/source/<source>",
        unit="reward",
        meaning="Mean reward of the tasks of this data source.",
    ),
    Metric(
        name="score/<channel>",
        unit="fraction",
        meaning="Mean score this verifier gave to the rollouts it judged.",
    ),
    Metric(
        name="habit/<name>_fraction",
        unit="fraction",
        meaning="Completions in which the pattern of `logging.habits` with this name is found.",
    ),
    Metric(
        name="advantage/collapsed_fraction",
        unit="fraction",
        meaning=(
            "Groups whose judged outcomes are all equal, of all groups generated: they rank nobody and "
            "teach nothing. The five kinds below add up to it."
        ),
        high=0.8,
    ),
    Metric(
        name="advantage/dead_fraction",
        unit="fraction",
        meaning=(
            "Groups without a signal after every remedy, of all groups generated; they cost no forward or "
            "backward pass."
        ),
        high=0.8,
    ),
    Metric(
        name="advantage/all_right_fraction",
        unit="fraction",
        meaning="Collapsed because every judged rollout is right: the tasks are too easy by now.",
    ),
    Metric(
        name="advantage/all_wrong_fraction",
        unit="fraction",
        meaning="Collapsed on one outcome that is not right: the tasks are too hard so far.",
    ),
    Metric(
        name="advantage/unjudged_fraction",
        unit="fraction",
        meaning="Collapsed because fewer than two rollouts were judged: look at the verifier.",
        high=0.05,
    ),
    Metric(
        name="advantage/truncated_fraction",
        unit="fraction",
        meaning="Collapsed because every judged rollout was cut off: raise sampling.max_tokens.",
        high=0.2,
    ),
    Metric(
        name="advantage/duplicate_fraction",
        unit="fraction",
        meaning="Collapsed because every rollout is the same text: the policy has lost its variety.",
        high=0.2,
    ),
    Metric(
        name="advantage/abs_mean",
        unit="",
        meaning="Mean absolute advantage over all rollouts; 0 when nothing can be learnt.",
    ),
    Metric(
        name="advantage/groups",
        unit="groups",
        meaning="Groups generated in the step, refills included.",
    ),
    Metric(
        name="advantage/refills",
        unit="draws",
        meaning="Further draws that dynamic sampling made in the step.",
    ),
    Metric(
        name="rollout/tokens_mean",
        unit="tokens",
        meaning="Mean number of tokens the policy generated per rollout.",
    ),
    Metric(
        name="rollout/tokens_max",
        unit="tokens",
        meaning="Longest rollout.",
    ),
    Metric(
        name="rollout/tokens_min",
        unit="tokens",
        meaning="Shortest rollout.",
    ),
    Metric(
        name="rollout/finished_tokens_mean",
        unit="tokens",
        meaning="Mean over the rollouts that were not cut off.",
    ),
    Metric(
        name="rollout/prompt_tokens_mean",
        unit="tokens",
        meaning="Mean number of tokens in the prompts.",
    ),
    Metric(
        name="rollout/truncated_fraction",
        unit="fraction",
        meaning="Rollouts cut off by the token budget.",
        high=0.1,
    ),
    Metric(
        name="rollout/duplicate_fraction",
        unit="fraction",
        meaning="Rollouts with the same tokens as an earlier one of their group.",
        high=0.5,
    ),
    Metric(
        name="policy/loss",
        unit="",
        meaning=(
            "The quantity whose gradient is taken, KL term included. On the first update of fresh "
            "rollouts it is near 0 by construction: its value says little, its gradient everything."
        ),
    ),
    Metric(
        name="policy/anchor_loss",
        unit="",
        meaning="Part of it that holds the policy to the untrained model's right answers: coefficient times "
        "the mean divergence per anchor token. 0 at the first update.",
    ),
    Metric(
        name="policy/entropy",
        unit="nats",
        meaning=(
            "Mean entropy of the learner's distribution at the trained tokens. A fall to 0 ends exploration."
        ),
        low=0.02,
    ),
    Metric(
        name="policy/clipped_low_fraction",
        unit="fraction",
        meaning=(
            "Trained tokens whose gradient clipping removed: ratio below 1 - clip_low, advantage negative."
        ),
        high=0.2,
    ),
    Metric(
        name="policy/clipped_high_fraction",
        unit="fraction",
        meaning=(
            "Trained tokens whose gradient clipping removed: ratio above 1 + clip_high, advantage positive."
        ),
        high=0.2,
    ),
    Metric(
        name="policy/kl_old",
        unit="nats",
        meaning=(
            "k3 estimate of the KL from the policy before the step's first update to the policy during it."
        ),
        high=0.1,
    ),
    Metric(
        name="policy/ratio_max",
        unit="",
        meaning="Largest exp(logprobs - old_logprobs) of a trained token.",
    ),
    Metric(
        name="policy/ratio_min",
        unit="",
        meaning="Smallest such ratio.",
    ),
    Metric(
        name="policy/kl_reference_k1",
        unit="nats",
        meaning=(
            "Mean of logprobs - reference_logprobs at the trained tokens: unbiased, noisy, may be negative."
        ),
    ),
    Metric(
        name="policy/kl_reference_k3",
        unit="nats",
        meaning="Mean of r - 1 - ln r with r = reference probability / probability: never negative.",
    ),
    Metric(
        name="policy/kl_other_k3/<number>",
        unit="nats",
        meaning="The same against the reference with this number, from 1, of algorithm.kl.others.",
    ),
    Metric(
        name="policy/reference_ratio_max",
        unit="",
        meaning="Largest reference probability / probability of a trained token.",
    ),
    Metric(
        name="policy/grad_norm",
        unit="",
        meaning="Norm of the gradient before clipping; the mean over the step's updates.",
    ),
    Metric(
        name="policy/lr",
        unit="",
        meaning="Learning rate of the step's last update.",
    ),
    Metric(
        name="policy/updates",
        unit="updates",
        meaning="Optimizer steps taken; 0 when no group had a signal.",
    ),
    Metric(
        name="policy/version",
        unit="",
        meaning="Policy version after the step.",
    ),
    Metric(
        name="mismatch/kl",
        unit="nats",
        meaning=(
            "k3 estimate of the KL from sampler to learner at the same weights: what rounding and kernels "
            "add."
        ),
        high=0.01,
    ),
    Metric(
        name="mismatch/logprob_gap_mean",
        unit="nats",
        meaning="Mean absolute difference of a token's log-prob between sampler and learner.",
        high=0.02,
    ),
    Metric(
        name="mismatch/logprob_gap_max",
        unit="nats",
        meaning="Largest such difference.",
        high=1.0,
    ),
    Metric(
        name="mismatch/chi_square",
        unit="",
        meaning="Mean square of the sampler-to-learner weights, less 1: the variance that correcting adds.",
        high=0.1,
    ),
    Metric(
        name="mismatch/effective_fraction",
        unit="fraction",
        meaning="Effective sample size of the sampler-to-learner weights, of the number of tokens.",
        low=0.9,
    ),
    Metric(
        name="mismatch/capped_fraction",
        unit="fraction",
        meaning="Tokens whose mismatch weight was capped.",
        high=0.05,
    ),
    Metric(
        name="mismatch/stale_fraction",
        unit="fraction",
        meaning="Rollouts drawn by weights older than algorithm.mismatch.max_lag allows; never trained on.",
        high=0.1,
    ),
    Metric(
        name="noise/gap_mean",
        unit="",
        meaning="Mean absolute difference between noise-corrected and uncorrected advantages.",
    ),
    Metric(
        name="noise/gap_max",
        unit="",
        meaning="Largest such difference.",
    ),
    Metric(
        name="noise/cosine",
        unit="",
        meaning="Cosine between corrected and uncorrected advantages; at 1 the correction changes nothing.",
    ),
    Metric(
        name="noise/false_negative_rate",
        unit="fraction",
        meaning="Right answers that the verifiers reject, estimated from appeals; running.",
    ),
    Metric(
        name="noise/informedness",
        unit="",
        meaning="Youden's J = 1 - false positive rate - false negative rate, the latter from appeals: at 0 "
        "training drifts, below it unlearns.",
        low=0.2,
    ),
    Metric(
        name="noise/informedness_low",
        unit="",
        meaning="Lower end of J's interval; at 0 or below the verifier has not been shown to point anywhere.",
        low=0.0,
    ),
    Metric(
        name="noise/informedness_high",
        unit="",
        meaning="Upper end of J's interval.",
    ),
    Metric(
        name="noise/appealed",
        unit="rollouts",
        meaning="Rejections of the step on which the second opinion gave a verdict.",
    ),
    Metric(
        name="noise/overturned",
        unit="rollouts",
        meaning="Of those, the ones that it finds right.",
    ),
    Metric(
        name="noise/predicted_right_fraction",
        unit="fraction",
        meaning="Share of accepted rollouts that the RLVeR equation predicts from the rates given under "
        "algorithm.noise, begun at the first step; compare reward/right_fraction.",
    ),
    Metric(
        name="sync/canary_gap_nats",
        unit="nats",
        meaning=(
            "Largest log-prob difference between sampler and learner on the fixed canary after the "
            "weights moved."
        ),
        high=0.05,
    ),
    Metric(
        name="sync/version",
        unit="",
        meaning="Policy version the sampler proved to hold.",
    ),
    Metric(
        name="sync/size_bytes",
        unit="bytes",
        meaning="Weights carried from learner to sampler.",
    ),
    Metric(
        name="verifier/unjudged_fraction",
        unit="fraction",
        meaning="Rollouts that no verdict could be had for: timeouts, abstentions and errors together.",
        high=0.02,
    ),
    Metric(
        name="verifier/worthless_accepted_fraction",
        unit="fraction",
        meaning="Of attempts that deserve nothing (empty, the question back, a spray of answers, another "
        "task's answer), those the verifier gave the full score at this evaluation. Anything above 0 will be "
        "found by the policy.",
        high=0.0,
    ),
    Metric(
        name="hacking/visible_percent",
        unit="percent",
        meaning="Mean share of visible tests passed, over evaluated tasks that have held-out tests too.",
    ),
    Metric(
        name="hacking/heldout_percent",
        unit="percent",
        meaning="Mean share of held-out tests passed by the same programs. It never reaches a reward.",
    ),
    Metric(
        name="hacking/gap_points",
        unit="points",
        meaning="Mean over tasks of visible minus held-out. A gap proves no intent: tests that combine "
        "features fail more often without any.",
        high=15.0,
    ),
    Metric(
        name="hacking/flagged_fraction",
        unit="fraction",
        meaning="Programs that look written for the visible tests (literals, lookup tables).",
        high=0.05,
    ),
    Metric(
        name="verifier/error_fraction",
        unit="fraction",
        meaning="Verdicts with status error.",
        high=0.01,
    ),
    Metric(
        name="verifier/timeout_fraction",
        unit="fraction",
        meaning="Verdicts with status timeout.",
        high=0.01,
    ),
    Metric(
        name="verifier/abstain_fraction",
        unit="fraction",
        meaning="Verdicts with status abstain.",
        high=0.2,
    ),
    Metric(
        name="verifier/unparseable_fraction",
        unit="fraction",
        meaning="Verdicts with status unparseable: no answer could be read.",
        high=0.5,
    ),
    Metric(
        name="verifier/truncated_fraction",
        unit="fraction",
        meaning="Verdicts with status truncated.",
        high=0.1,
    ),
    Metric(
        name="verifier/flagged_fraction",
        unit="fraction",
        meaning="Verdicts that carry a flag.",
    ),
    Metric(
        name="verifier/latency_mean_s",
        unit="s",
        meaning="Mean time a verifier took for one attempt.",
    ),
    Metric(
        name="verifier/latency_max_s",
        unit="s",
        meaning="Slowest attempt.",
    ),
    Metric(
        name="time/sample_s",
        unit="s",
        meaning="Sampling, refills included.",
    ),
    Metric(
        name="time/score_s",
        unit="s",
        meaning="Judging that was waited for.",
    ),
    Metric(
        name="time/pack_s",
        unit="s",
        meaning="Advantages and the crossing to tensors.",
    ),
    Metric(
        name="time/learn_s",
        unit="s",
        meaning="Log-probs, forward, backward and the optimizer.",
    ),
    Metric(
        name="time/sync_s",
        unit="s",
        meaning="Carrying the weights to the sampler and proving that they arrived.",
    ),
    Metric(
        name="time/checkpoint_s",
        unit="s",
        meaning="Writing a checkpoint.",
    ),
    Metric(
        name="time/eval_s",
        unit="s",
        meaning="Held-out evaluation.",
    ),
    Metric(
        name="time/log_s",
        unit="s",
        meaning="Writing rollouts, metrics and ledger.",
    ),
    Metric(
        name="time/step_s",
        unit="s",
        meaning="The whole step, wall clock.",
    ),
    Metric(
        name="throughput/generated_tokens_per_s",
        unit="tokens/s",
        meaning="Tokens generated / time/sample_s.",
    ),
    Metric(
        name="throughput/trained_tokens_per_s",
        unit="tokens/s",
        meaning="Tokens trained on / time/learn_s.",
    ),
    Metric(
        name="throughput/rollouts_per_s",
        unit="rollouts/s",
        meaning="Rollouts generated / time/step_s.",
    ),
    Metric(
        name="memory/peak_bytes",
        unit="bytes",
        meaning="Largest resident set of the process so far.",
    ),
    Metric(
        name="memory/device_peak_bytes",
        unit="bytes",
        meaning="Peak of the accelerator's allocator during the step.",
    ),
    Metric(
        name="data/epoch",
        unit="epochs",
        meaning="How often the training tasks have been drawn; 1.5 is halfway through the second pass.",
    ),
    Metric(
        name="data/tasks",
        unit="tasks",
        meaning="Tasks drawn so far.",
    ),
    Metric(
        name="data/seen_fraction",
        unit="fraction",
        meaning="Tasks that the curriculum has drawn at least once.",
    ),
    Metric(
        name="data/pass_rate_mean",
        unit="fraction",
        meaning="Mean over those tasks of the pass rate that the curriculum expects.",
    ),
    Metric(
        name="data/mastered_fraction",
        unit="fraction",
        meaning="Those of them expected to pass more than nine times in ten.",
        high=0.9,
    ),
    Metric(
        name="eval/accuracy",
        unit="fraction",
        meaning="The headline estimate of an evaluation: greedy accuracy when there is one, else pass@1.",
    ),
    Metric(
        name="eval/accuracy_low",
        unit="fraction",
        meaning="Lower end of its interval over questions.",
    ),
    Metric(
        name="eval/accuracy_high",
        unit="fraction",
        meaning="Upper end of its interval over questions.",
    ),
    Metric(
        name="eval/<metric>",
        unit="fraction",
        meaning="Any other estimate of an evaluation, by its name there: pass_at_4, format:accuracy.",
    ),
    Metric(
        name="eval/source/<source>",
        unit="fraction",
        meaning="The headline estimate on the held-out questions of this source.",
    ),
]

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _METRICS}
"""By name, in the order in which people want to read them."""
_EXACT = {name: metric for name, metric in METRICS.items() if "<" not in name}
_PATTERNS = [
    (re.compile(_PLACE.sub("[A-Za-z0-9_.:-]+", name)), metric)
    for name, metric in METRICS.items()
    if "<" in name
]


def metric_of(name: str) -> Metric:
    """The entry that a recorded name belongs to.

    Raises:
        RunError: no entry fits; names the nearest one.

    Example:
        >>> metric_of("score/math").name
        'score/<channel>'
    """
    if name in _EXACT:
        return _EXACT[name]
    for pattern, metric in _PATTERNS:
        if pattern.fullmatch(name):
            return metric
    near = difflib.get_close_matches(name, METRICS, n=1, cutoff=0.5)
    hint = f"; nearest is {near[0]!r}" if near else ""
    raise RunError(f"metrics: name = {name!r}: expected a name listed in peira/runs/metrics.py{hint}")


def metric_name(pattern: str, **parts: object) -> str:
    """Fill in a name in angle brackets; characters that would break it become "_".

    Raises:
        RunError: the pattern is not listed.

    Example:
        >>> metric_name("reward/source/<source>", source="data/gsm8k train.jsonl")
        'reward/source/data_gsm8k_train.jsonl'
    """
    if pattern not in METRICS:
        metric_of(pattern)
    return _PLACE.sub(lambda m: _PART.sub("_", str(parts[m.group(1)])) or "_", pattern)


def checked_metrics(values: Mapping[str, float | int | None]) -> dict[str, float | int]:
    """The metrics of one step, ready to be written: names listed, values plain numbers.

    None means that the metric has no value in this step (a mean over nothing) and is left out. NaN and
    infinities are kept: they are what the run saw, and a report that hides them would be wrong.

    Raises:
        RunError: a name is not listed, or a value is not a number.
    """
    checked: dict[str, float | int] = {}
    for name, value in values.items():
        if name not in RESERVED:
            metric_of(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise RunError(
                f"metrics: {name} = {value!r}: expected a number or None; convert tensors with float()"
            )
        checked[name] = value
    return checked


_PREFACE = """# Metrics

Every number in `metrics.jsonl`, in TensorBoard and in the report. A name in angle brackets is filled in:
`score/<channel>` is recorded as `score/math`. *Healthy* is where a run that learns usually keeps the number;
outside it, look. A name that is not listed here is refused by the writer, a number that is not finite is
recorded as the string `nan`, `inf` or `-inf`, and a metric without a value in a step (a mean over nothing) is
left out of that step.

This page is generated: `python -m peira.runs.metrics > docs/metrics.md`."""


def metrics_page() -> str:
    """docs/metrics.md, made from the registry."""
    lines = [_PREFACE]
    room = ""
    for metric in METRICS.values():
        if metric.name.split("/")[0] != room:
            room = metric.name.split("/")[0]
            lines += ["", f"## {room}", "", "| name | unit | healthy | meaning |", "|---|---|---|---|"]
        lines.append(
            f"| `{metric.name}` | {metric.unit or '-'} | {healthy_range(metric)} | {metric.meaning} |"
        )
    return "\n".join(lines) + "\n"


def healthy_range(metric: Metric) -> str:
    """The range in words: "at most 0.1", "0.9 to 1.1", "-" where any value may be healthy."""
    match metric.low, metric.high:
        case None, None:
            return "-"
        case None, high:
            return f"at most {high:g}"
        case low, None:
            return f"at least {low:g}"
        case low, high:
            return f"{low:g} to {high:g}"


if __name__ == "__main__":
    print(metrics_page(), end="")
