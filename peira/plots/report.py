"""One run as one HTML file: no network, no server, readable by anyone it is sent to.

The page is whole without a script: verdict, charts, tables. The script adds values under the pointer and the
browser of rollouts. All that the policy wrote is data: it is compressed into the page and set as text, never
as markup, under a content policy that allows no request at all.
"""

import json
import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment
from markupsafe import Markup

from peira.errors import RunError
from peira.plots.browser import BUDGET_BYTES, Packed, pack_questions, pack_rollouts
from peira.plots.chart import legend, pretty, svg
from peira.plots.curves import COLOURS, sections
from peira.runs.evaluation import Estimate, EvalRecord
from peira.runs.jsonl import write_file
from peira.runs.ledger import Count, Ledger
from peira.runs.metrics import healthy_range, metric_of
from peira.runs.reader import Ending, RunReader, RunState

QUESTIONS_BYTES = 2_500_000


def write_report(
    run_folder: Path,
    *,
    out: Path | None = None,
    changed: Mapping[str, tuple[Any, Any]] | None = None,
    budget_bytes: int = BUDGET_BYTES,
) -> Path:
    """Write the report of a run in whatever state it is; return the file.

    Args:
        run_folder: finished, running, killed, empty, or nothing but evaluations.
        out: where to; `report.html` in the run folder when None.
        changed: the settings that differ from their default: dotted key -> (value, default).
        budget_bytes: what rollouts may fill of the page.

    Raises:
        RunError: there is no such folder, a file in it is broken, or the page cannot be written.
    """
    reader = RunReader(run_folder)
    path = out or reader.folder.report_file
    write_file(path, [page(reader, changed=changed, budget_bytes=budget_bytes).encode("utf-8", "replace")])
    return path


def page(
    reader: RunReader,
    *,
    changed: Mapping[str, tuple[Any, Any]] | None = None,
    budget_bytes: int = BUDGET_BYTES,
) -> str:
    """The whole page."""
    metrics = reader.metrics()
    evals = reader.evals()
    ledger = reader.ledger()
    ending = reader.ending()
    config = _config(reader)
    rollouts = pack_rollouts(reader, budget_bytes=budget_bytes)
    questions = pack_questions(reader, budget_bytes=QUESTIONS_BYTES)
    home = files("peira.plots")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["svg"] = lambda chart: Markup(svg(chart))
    environment.filters["pretty"] = pretty
    environment.filters["when"] = _when
    environment.filters["words"] = _words
    environment.filters["brief"] = _brief
    environment.globals["legend"] = legend
    template = environment.from_string((home / "report.html.jinja").read_text(encoding="utf-8"))
    return template.render(
        name=reader.folder.path.resolve().name,
        style=Markup((home / "report.css").read_text(encoding="utf-8")),
        script=Markup((home / "report.js").read_text(encoding="utf-8")),
        verdict=verdict(metrics, evals, changed_questions(reader, evals)),
        standing=standing(ending, metrics, config),
        ending=ending,
        figures=figures(metrics, evals, ledger),
        findings=findings(reader, metrics, ledger, ending),
        interval=interval_chart(evals),
        sections=sections(metrics, evals, ledger),
        ledger=ledger_table(ledger),
        truncations=reader.truncations(),
        evals=evals,
        eval_names=list(dict.fromkeys(name for record in evals for name in record.estimates)),
        config_text=reader.config_text(),
        changed=[(key, _brief(new), _brief(old)) for key, (new, old) in (changed or {}).items()],
        environment=list(_flat(reader.environment())),
        events=reader.events(),
        rollouts=rollouts,
        questions=questions,
        payload=_payload(rollouts, questions, evals),
        made=time.time(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The run in one line."""

    lead: str
    before: str = ""
    after: str = ""
    change: str = ""
    better: bool | None = None
    small_print: str = ""


def verdict(
    metrics: Sequence[Mapping[str, float]],
    evals: Sequence[EvalRecord],
    changes: tuple[int, int] | None = None,
) -> Verdict:
    """What the run achieved: held-out numbers where there are any, the training reward otherwise.

    Args:
        metrics: of every step.
        evals: every evaluation, in order.
        changes: questions learnt and questions lost between the first evaluation and the last, when known.
    """
    if evals:
        first, last = evals[0], evals[-1]
        name = _words(last.headline)
        after = last.headline_estimate
        if len(evals) == 1 or first.headline != last.headline:
            return Verdict(
                lead=f"Held-out {name}",
                after=pretty(after.value, "fraction"),
                small_print=f"{_interval(last, after)}; measured {_moment(last.step).lower()}",
            )
        before = first.headline_estimate
        points = 100 * (after.value - before.value)
        real, reason = _is_real(first, last, changes)
        return Verdict(
            lead=f"Held-out {name}",
            before=pretty(before.value, "fraction"),
            after=pretty(after.value, "fraction"),
            change=f"{points:+.1f} points" if points else "no change",
            better=points > 0 if real else None,
            small_print=f"{_moment(first.step)}: {_interval(first, before)}. "
            f"{_moment(last.step)}: {_interval(last, after)}. " + reason,
        )
    rewards = [
        record["reward/mean"] for record in metrics if math.isfinite(record.get("reward/mean", math.nan))
    ]
    if rewards:
        few = max(1, min(5, len(rewards) // 2))
        return Verdict(
            lead="Training reward",
            before=pretty(statistics.fmean(rewards[:few])) if len(rewards) > 1 else "",
            after=pretty(statistics.fmean(rewards[-few:])),
            small_print=f"Means of the first and last {few} of {len(rewards)} steps, on the training tasks. "
            "There is no held-out evaluation in this folder.",
        )
    return Verdict(lead="Nothing has been measured yet", small_print="No step and no evaluation is recorded.")


def _is_real(first: EvalRecord, last: EvalRecord, changes: tuple[int, int] | None) -> tuple[bool, str]:
    """Whether the change is more than chance at the evaluation's confidence, and why, in words.

    Where the same questions were asked twice, an exact sign test over those whose answer changed; the
    intervals otherwise.
    """
    if changes is None:
        before, after = first.headline_estimate, last.headline_estimate
        apart = before.high < after.low or after.high < before.low
        return apart, "" if apart else "The intervals overlap: the difference may be chance."
    learnt, lost = changes
    changed = learnt + lost
    tail = sum(math.comb(changed, k) for k in range(min(learnt, lost) + 1)) / 2**changed
    real = 2 * tail < 1 - last.confidence
    text = f"{learnt:,} questions learnt, {lost:,} lost"
    return real, f"{text}." if real or not changed else f"{text}: the difference may be chance."


def changed_questions(reader: RunReader, evals: Sequence[EvalRecord]) -> tuple[int, int] | None:
    """Questions that went from wrong to right, and from right to wrong, by their first completion.

    None unless the headline is accuracy and both evaluations kept the questions.
    """
    if len(evals) < 2 or evals[0].headline != "accuracy" or evals[-1].headline != "accuracy":
        return None
    before, after = (
        {question.task_id: question.completions[0].right for question in reader.eval_questions(record.step)}
        for record in (evals[0], evals[-1])
    )
    both = [(before[name], after[name]) for name in before if name in after]
    return (both.count((False, True)), both.count((True, False))) if both else None


def standing(ending: Ending, metrics: Sequence[Mapping[str, float]], config: Mapping[str, Any]) -> str:
    """How the run stands, in words."""
    done = int(metrics[-1]["step"]) if metrics else 0
    planned = config.get("steps")
    steps = f"{done:,} of {planned:,} steps" if isinstance(planned, int) and metrics else f"{done:,} steps"
    match ending.state:
        case RunState.RUNNING:
            return f"running, {steps} taken"
        case RunState.FINISHED:
            return f"finished, {steps} taken" if metrics else "finished"
        case RunState.STOPPED:
            return f"stopped after {steps} with exit code {ending.exit_code}"
        case RunState.KILLED:
            return f"killed after {steps}"
        case RunState.EMPTY:
            return "empty"


def figures(
    metrics: Sequence[Mapping[str, float]], evals: Sequence[EvalRecord], ledger: Ledger
) -> list[tuple[str, str, str]]:
    """(value, name, note) of the numbers that people ask for first."""
    total = ledger.total
    found: list[tuple[str, str, str]] = []
    if metrics:
        found.append((f"{int(metrics[-1]['step']):,}", "steps", ""))
    if total.generated.rollouts:
        share = total.trained.rollouts / total.generated.rollouts
        found.append((f"{total.generated.rollouts:,}", "rollouts", f"{pretty(share, 'fraction')} trained on"))
        found.append(
            (f"{total.generated.tokens:,}", "tokens generated", f"{total.trained.tokens:,} trained on")
        )
    seconds = [record.get("time/step_s", math.nan) for record in metrics]
    known = [value for value in seconds if math.isfinite(value)]
    if known:
        found.append((_duration(sum(known)), "in steps", f"median {statistics.median(known):.3g} s"))
    for name, title in (
        ("throughput/generated_tokens_per_s", "tokens/s sampling"),
        ("throughput/trained_tokens_per_s", "tokens/s learning"),
    ):
        values = [record[name] for record in metrics if math.isfinite(record.get(name, math.nan))]
        if values:
            found.append((pretty(statistics.median(values)), title, "median"))
    peaks = [record["memory/peak_bytes"] for record in metrics if "memory/peak_bytes" in record]
    if peaks:
        found.append((pretty(max(peaks), "bytes"), "peak memory", ""))
    if evals and not metrics:
        found.append(
            (f"{evals[-1].num_questions:,}", "questions", f"{evals[-1].num_completions:,} completions")
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something a person should look at."""

    grave: bool
    title: str
    text: str


def findings(
    reader: RunReader, metrics: Sequence[Mapping[str, float]], ledger: Ledger, ending: Ending
) -> list[Finding]:
    """What is out of its healthy range at the end of the run, not finite, unbalanced, or ended badly."""
    found = []
    if ending.state in (RunState.STOPPED, RunState.KILLED):
        found.append(Finding(grave=True, title="The run did not end as planned", text=ending.message))
    try:
        ledger.check()
    except RunError as error:
        found.append(Finding(grave=True, title="The ledger does not balance", text=str(error)))
    for name in reader.metric_names():
        points = [(int(record["step"]), record[name]) for record in metrics if name in record]
        broken = [step for step, value in points if not math.isfinite(value)]
        if broken:
            more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
            text = f"at step {broken[0]}{more}"
            found.append(Finding(grave=True, title=f"{name} was not a finite number", text=text))
        finite = [value for _, value in points if math.isfinite(value)]
        tail = finite[-max(1, len(finite) // 10) :]
        if not tail:
            continue
        try:
            metric = metric_of(name)
        except RunError:  # a folder from another version of the registry
            continue
        typical = statistics.median(tail)
        if not metric.healthy(typical):
            unit = "" if metric.unit == "fraction" else f" {metric.unit}"
            found.append(
                Finding(
                    grave=False,
                    title=f"{name} ends at {pretty(typical, metric.unit)}{unit}",
                    text=f"healthy: {healthy_range(metric)}. {metric.meaning}",
                )
            )
    return found


def interval_chart(evals: Sequence[EvalRecord]) -> Markup:
    """Before and after as two points with their intervals on one scale from 0 to 1."""
    rows = [evals[0], evals[-1]] if len(evals) > 1 else list(evals)
    if not rows:
        return Markup("")
    width, left = 560, 110
    parts = []
    for tick in (0, 25, 50, 75, 100):
        x = left + (width - left - 20) * tick / 100
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="6" y2="{10 + 30 * len(rows)}"/>'
            f'<text class="tick" x="{x:.1f}" y="{26 + 30 * len(rows)}" text-anchor="middle">{tick} %</text>'
        )
    for index, record in enumerate(rows):
        estimate = record.headline_estimate
        y = 24 + 30 * index
        low, value, high = (
            left + (width - left - 20) * min(1.0, max(0.0, each))
            for each in (estimate.low, estimate.value, estimate.high)
        )
        colour = "c7" if index == 0 and len(rows) > 1 else "c0"
        parts.append(
            f'<text class="tick" x="{left - 12}" y="{y + 4}" text-anchor="end">'
            f"{_moment(record.step).lower()}</text>"
            f'<path class="interval {colour}" d="M{low:.1f},{y}H{high:.1f}"/>'
            f'<circle class="dot {colour}" cx="{value:.1f}" cy="{y}" r="6"/>'
        )
    label = "; ".join(
        f"{_moment(record.step)} {pretty(record.headline_estimate.value, 'fraction')}, "
        f"{_interval(record, record.headline_estimate)}"
        for record in rows
    )
    height = 34 + 30 * len(rows)
    return Markup(
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{{}}">{{}}</svg>'
    ).format(label, Markup("".join(parts)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerTable:
    """The ledger, laid out so that a reader can add it up."""

    rows: list[tuple[int, str, Count, float]]
    """(colour, name, count, share of the rollouts generated)"""
    total: Count
    generated: Count
    balanced: bool
    steps: list[dict[str, Any]]
    reasons: list[str]


def ledger_table(ledger: Ledger) -> LedgerTable | None:
    """None when nothing was generated."""
    total = ledger.total
    if not ledger.entries:
        return None
    everything = max(1, total.generated.rollouts)
    rows = [(COLOURS["trained"], "trained on", total.trained, total.trained.rollouts / everything)]
    dropped = sorted(total.dropped.items(), key=lambda item: -item[1].rollouts)
    rows += [
        (COLOURS.get(reason, 5), f"dropped: {_words(reason)}", count, count.rollouts / everything)
        for reason, count in dropped
    ]
    rows.append((6, "pending", total.pending, total.pending.rollouts / everything))
    out = total.trained + total.dropped_total + total.pending
    return LedgerTable(
        rows=rows,
        total=out,
        generated=total.generated,
        balanced=out == total.generated,
        steps=[
            {
                "step": entry.step,
                "generated": entry.generated.rollouts,
                "trained": entry.trained.rollouts,
                "dropped": [entry.dropped.get(reason, Count()).rollouts for reason, _ in dropped],
                "pending": entry.pending.rollouts,
            }
            for entry in ledger.entries
        ],
        reasons=[_words(reason) for reason, _ in dropped],
    )


def _payload(rollouts: Packed, questions: Packed, evals: Sequence[EvalRecord]) -> Markup:
    """The data of the browser as JSON that no `</script>` inside can end."""
    steps = [record.step for record in evals]
    value = {
        "train": {"index": rollouts.index, "blobs": rollouts.blobs},
        "eval": {"index": questions.index, "blobs": questions.blobs, "first": steps[0] if steps else 0},
    }
    return Markup(json.dumps(value, separators=(",", ":")).replace("<", "\\u003c"))


def _config(reader: RunReader) -> dict[str, Any]:
    try:
        found = yaml.safe_load(reader.config_text())
    except yaml.YAMLError:  # the text itself is shown as it is
        return {}
    return found if isinstance(found, dict) else {}


def _flat(value: Any, prefix: str = "") -> Iterable[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(item, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, _brief(value)


def _brief(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case str():
            return value or '""'
        case float():
            return f"{value:g}"
        case _:
            return json.dumps(value, ensure_ascii=False, default=str)


def _words(name: str) -> str:
    return name.replace("_at_", "@").replace("_", " ")


def _moment(step: int) -> str:
    return "Before training" if step == 0 else f"After step {step:,}"


def _interval(record: EvalRecord, estimate: Estimate) -> str:
    return (
        f"{100 * record.confidence:g} % interval {pretty(estimate.low, 'fraction')} to "
        f"{pretty(estimate.high, 'fraction')} over {estimate.num_questions:,} questions"
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
