"""Which charts a report shows, in which order, and what each says to a first-time reader."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from peira.errors import RunError
from peira.plots.chart import Chart, Series
from peira.runs.evaluation import EvalRecord
from peira.runs.ledger import Ledger
from peira.runs.metrics import RESERVED, metric_of

Records = Sequence[Mapping[str, float]]
FRACTION = (0.0, 1.0)
COLOURS = {
    "trained": 0,
    "collapsed_all_wrong": 1,
    "collapsed_all_right": 2,
    "collapsed_truncated": 3,
    "collapsed_duplicate": 4,
    "collapsed_other": 5,
    "masked_truncated": 3,
    "surplus": 6,
    "unjudged": 7,
    "too_few_judged": 7,
}
"""What became of a rollout has one colour on the whole page; reasons not listed share the sixth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSection:
    """Charts that answer one question."""

    id: str
    title: str
    charts: list[Chart]
    folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A chart before its numbers: which metrics, under which names."""

    title: str
    note: str
    lines: Mapping[str, str]
    """metric -> name in the legend; a metric that ends in "/*" stands for all that begin so."""
    unit: str = ""
    stacked: bool = False
    log: bool = False
    bounds: tuple[float | None, float | None] = (None, None)
    healthy: str = ""
    """The metric whose healthy range is drawn."""
    smooth: bool = False
    needs: str = ""
    """Draw nothing without this metric."""
    colours: tuple[int, ...] = ()
    """Of the lines, in their order; by place when empty."""


_LEARNS = [
    _Plan(
        title="Reward",
        note="Mean over the judged rollouts of each step; bold: running mean.",
        lines={"reward/mean": "reward"},
        smooth=True,
    ),
    _Plan(
        title="Scores by verifier",
        note="What each verifier gave, before weights and penalties.",
        lines={"score/*": ""},
        unit="fraction",
        bounds=FRACTION,
    ),
    _Plan(
        title="Reward by source",
        note="Mean reward of each data source.",
        lines={"reward/source/*": ""},
    ),
]
_SIGNAL = [
    _Plan(
        title="Collapsed groups, by kind",
        note="Groups with one outcome rank nobody and teach nothing. All right: too easy by now. All wrong: "
        "too hard so far. The other kinds point at the token budget, the entropy, the verifier.",
        lines={
            "advantage/all_wrong_fraction": "all wrong",
            "advantage/all_right_fraction": "all right",
            "advantage/truncated_fraction": "truncated",
            "advantage/duplicate_fraction": "duplicate",
            "advantage/unjudged_fraction": "unjudged",
        },
        unit="fraction",
        stacked=True,
        bounds=FRACTION,
        colours=(1, 2, 3, 4, 7),
    ),
    _Plan(
        title="Groups without a signal",
        note="After every remedy. They cost no forward or backward pass and move no weight.",
        lines={"advantage/dead_fraction": "dead groups"},
        unit="fraction",
        bounds=FRACTION,
        healthy="advantage/dead_fraction",
        smooth=True,
    ),
    _Plan(
        title="Length",
        note="Tokens the policy generated per rollout.",
        lines={
            "rollout/tokens_mean": "mean",
            "rollout/finished_tokens_mean": "mean, finished only",
            "rollout/tokens_max": "longest",
        },
        unit="tokens",
        bounds=(0.0, None),
    ),
    _Plan(
        title="Cut off and repeated rollouts",
        note="Truncated: the token budget ran out. Duplicate: the same tokens as a sibling.",
        lines={"rollout/truncated_fraction": "truncated", "rollout/duplicate_fraction": "duplicate"},
        unit="fraction",
        bounds=(0.0, None),
    ),
]
_POLICY = [
    _Plan(
        title="Entropy",
        note="Of the next-token distribution at the trained tokens. When it falls to 0, exploration is over.",
        lines={"policy/entropy": "entropy"},
        unit="nats",
        bounds=(0.0, None),
        healthy="policy/entropy",
        smooth=True,
    ),
    _Plan(
        title="KL",
        note="How far the policy moves within a step, and how far it has left the reference.",
        lines={
            "policy/kl_old": "from the step's start (k3)",
            "policy/kl_reference_k3": "from the reference (k3)",
            "policy/kl_reference_k1": "from the reference (k1)",
            "policy/kl_other_k3/*": "",
        },
        unit="nats",
        healthy="policy/kl_old",
    ),
    _Plan(
        title="Clipped tokens",
        note="Trained tokens whose gradient the clip bounds removed; 0 on a first update of fresh rollouts.",
        lines={"policy/clipped_low_fraction": "below", "policy/clipped_high_fraction": "above"},
        unit="fraction",
        bounds=(0.0, None),
        healthy="policy/clipped_high_fraction",
    ),
    _Plan(
        title="Habits",
        note="Share of completions with each pattern of logging.habits. One that rises while the reward does "
        "not need it is being amplified.",
        lines={"habit/*": ""},
        unit="fraction",
        bounds=FRACTION,
    ),
    _Plan(
        title="Gradient norm",
        note="Before clipping.",
        lines={"policy/grad_norm": "norm"},
        bounds=(0.0, None),
        smooth=True,
    ),
    _Plan(
        title="Loss",
        note="Near 0 by construction while rollouts are fresh: the value says little, the gradient all.",
        lines={"policy/loss": "loss"},
    ),
    _Plan(
        title="Learning rate",
        note="Of the last update of each step.",
        lines={"policy/lr": "lr"},
        bounds=(0.0, None),
    ),
]
_SEAM = [
    _Plan(
        title="Sampler against learner",
        note="Differences of log-probs at the same weights: rounding only, or the gradient is biased.",
        lines={
            "mismatch/logprob_gap_max": "largest",
            "mismatch/logprob_gap_mean": "mean",
            "sync/canary_gap_nats": "canary after sync",
        },
        unit="nats",
        log=True,
    ),
    _Plan(
        title="Mismatch KL",
        note="k3 estimate of the KL from sampler to learner.",
        lines={"mismatch/kl": "KL"},
        unit="nats",
        log=True,
        healthy="mismatch/kl",
    ),
    _Plan(
        title="Effective sample size",
        note="Of the sampler-to-learner weights; 1 when both agree.",
        lines={"mismatch/effective_fraction": "effective"},
        unit="fraction",
        bounds=(0.9, 1.0),
        healthy="mismatch/effective_fraction",
    ),
]
_TIME = [
    _Plan(
        title="Time by stage",
        note="Seconds of each step.",
        lines={
            "time/sample_s": "sample",
            "time/score_s": "score",
            "time/pack_s": "pack",
            "time/learn_s": "learn",
            "time/sync_s": "sync",
            "time/checkpoint_s": "checkpoint",
            "time/eval_s": "evaluate",
            "time/log_s": "record",
        },
        unit="s",
        stacked=True,
    ),
    _Plan(
        title="Throughput",
        note="Tokens per second of sampling and of learning.",
        lines={
            "throughput/generated_tokens_per_s": "generated",
            "throughput/trained_tokens_per_s": "trained",
        },
        unit="tokens/s",
        bounds=(0.0, None),
    ),
    _Plan(
        title="Memory",
        note="Largest so far.",
        lines={"memory/peak_bytes": "process", "memory/device_peak_bytes": "accelerator"},
        unit="bytes",
        bounds=(0.0, None),
    ),
]
_VERIFIER = [
    _Plan(
        title="Does the verifier tell right from wrong?",
        note="Youden's J from appeals, with its interval. At 0 training drifts, below 0 it unlearns.",
        lines={
            "noise/informedness": "J",
            "noise/informedness_low": "lower end",
            "noise/informedness_high": "upper end",
        },
        healthy="noise/informedness_low",
    ),
    _Plan(
        title="Fate: predicted and real",
        note="Accepted rollouts, and what the equation of a noisy verifier predicts from the rates in the "
        "settings. The two start together at the first step; the curve is of one mean prompt.",
        lines={
            "noise/predicted_right_fraction": "predicted",
            "reward/right_fraction": "accepted",
        },
        needs="noise/predicted_right_fraction",
        unit="fraction",
        bounds=FRACTION,
    ),
    _Plan(
        title="Verdicts that are not plain scores",
        note="Unparseable and truncated are the policy's doing and have a score. Timeout, abstain and error "
        "are ours: such rollouts have no reward and do not count as wrong.",
        lines={
            "verifier/unparseable_fraction": "unparseable",
            "verifier/truncated_fraction": "truncated",
            "verifier/timeout_fraction": "timeout",
            "verifier/abstain_fraction": "abstain",
            "verifier/error_fraction": "error",
        },
        unit="fraction",
        stacked=True,
    ),
    _Plan(
        title="Unjudged rollouts",
        note="Without any verdict that counts; above the limit in the settings the run stops.",
        lines={"verifier/unjudged_fraction": "unjudged"},
        unit="fraction",
        bounds=(0.0, None),
        healthy="verifier/unjudged_fraction",
    ),
]
_SECTIONS = [
    ("learns", "Does it learn?", _LEARNS),
    ("signal", "Is there a signal?", _SIGNAL),
    ("policy", "Is the policy healthy?", _POLICY),
    ("seam", "Do sampler and learner agree?", _SEAM),
    ("verifier", "Can the verifiers judge?", _VERIFIER),
    ("time", "Where does the time go?", _TIME),
]


def sections(metrics: Records, evals: Sequence[EvalRecord], ledger: Ledger) -> list[ChartSection]:
    """Every chart that has a number, and a folded section with the metrics that no chart above shows."""
    names = sorted({name for record in metrics for name in record} - set(RESERVED))
    shown: set[str] = set()
    found = []
    for key, title, plans in _SECTIONS:
        charts = [chart for plan in plans if (chart := _chart(plan, metrics, names, shown)) is not None]
        if key == "learns" and (held_out := eval_chart(evals)) is not None:
            charts.insert(1, held_out)
        if key == "signal" and (fates := fate_chart(ledger)) is not None:
            charts.insert(0, fates)
        if charts:
            found.append(ChartSection(id=key, title=title, charts=charts))
    rest = [name for name in names if name not in shown and not name.startswith("eval/")]
    if rest:
        charts = [_single(name, metrics) for name in rest]
        found.append(ChartSection(id="more", title="Every other metric", charts=charts, folded=True))
    return found


def eval_chart(evals: Sequence[EvalRecord]) -> Chart | None:
    """Held-out estimates over the run, with their intervals."""
    names = list(dict.fromkeys(name for record in evals for name in record.estimates))
    lines = []
    for name in names:
        points = [(record.step, record.estimates[name]) for record in evals if name in record.estimates]
        lines.append(
            Series(
                name=name.replace("_at_", "@").replace("_", " "),
                steps=[step for step, _ in points],
                values=[estimate.value for _, estimate in points],
                low=[estimate.low for _, estimate in points],
                high=[estimate.high for _, estimate in points],
            )
        )
    if not lines:
        return None
    last = evals[-1]
    return Chart(
        title="Held-out evaluation",
        note=f"Over {last.num_questions:,} questions that are never trained on; "
        f"bars are {last.confidence:.0%} intervals.",
        unit="fraction",
        series=lines,
        bounds=FRACTION,
    )


def fate_chart(ledger: Ledger) -> Chart | None:
    """What became of each step's rollouts."""
    if not ledger.entries:
        return None
    steps = [entry.step for entry in ledger.entries]
    reasons = sorted(ledger.total.dropped, key=lambda reason: -ledger.total.dropped[reason].rollouts)
    layers = [
        Series(
            name="trained",
            steps=steps,
            values=[entry.trained.rollouts for entry in ledger.entries],
            colour=COLOURS["trained"],
        )
    ]
    for reason in reasons:
        counts = [
            entry.dropped[reason].rollouts if reason in entry.dropped else 0 for entry in ledger.entries
        ]
        layers.append(
            Series(
                name=reason.value.replace("_", " "),
                steps=steps,
                values=counts,
                colour=COLOURS.get(reason.value, 5),
            )
        )
    return Chart(
        title="What became of the rollouts",
        note="Rollouts of each step: trained on, or dropped for a reason.",
        unit="rollouts",
        series=layers,
        stacked=True,
    )


def _chart(plan: _Plan, metrics: Records, names: Sequence[str], shown: set[str]) -> Chart | None:
    if plan.needs and plan.needs not in names:
        return None
    lines = []
    for place, (metric, title) in enumerate(plan.lines.items()):
        colour = plan.colours[place] if plan.colours else None
        if metric.endswith("/*"):
            prefix = metric.removesuffix("*")
            wanted = [(name, name.removeprefix(prefix)) for name in names if name.startswith(prefix)]
        else:
            wanted = [(metric, title)] if metric in names else []
        for name, label in wanted:
            shown.add(name)
            lines.append(_series(name, label, metrics, plan.smooth, colour))
    if not lines:
        return None
    if plan.stacked:  # a layer that is 0 throughout only lengthens the legend
        lines = [line for line in lines if any(line.values)] or lines[:1]
    healthy = metric_of(plan.healthy) if plan.healthy else None
    return Chart(
        title=plan.title,
        note=plan.note,
        unit=plan.unit,
        series=lines,
        stacked=plan.stacked,
        log=plan.log,
        bounds=plan.bounds,
        healthy=(healthy.low, healthy.high) if healthy else (None, None),
    )


def _single(name: str, metrics: Records) -> Chart:
    try:
        metric = metric_of(name)
    except RunError:  # recorded by another version
        return Chart(title=name, note="", unit="", series=[_series(name, name, metrics)])
    return Chart(
        title=name,
        note=metric.meaning,
        unit=metric.unit,
        series=[_series(name, name.split("/")[-1], metrics)],
        healthy=(metric.low, metric.high),
    )


def _series(
    name: str, label: str, metrics: Records, smooth: bool = False, colour: int | None = None
) -> Series:
    points = [(int(record["step"]), record[name]) for record in metrics if name in record]
    return Series(
        name=label,
        steps=[step for step, _ in points],
        values=[value for _, value in points],
        smooth=smooth,
        colour=colour,
    )
