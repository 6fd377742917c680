"""What a person sees of a run: rate, ETA, reward, collapse; a bar in a terminal, plain lines elsewhere."""

import time
from collections import deque
from collections.abc import Iterable, Mapping
from statistics import median
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from peira.runs.evaluation import EvalRecord

_LEVELS = "▁▂▃▄▅▆▇█"
_WIDTH = 24
_PACE_STEPS = 8
"""The ETA follows the median of this many steps."""
_QUIET_S = 30.0
"""Without a terminal, a stage that takes long says how far it is this often."""


class Display:
    """An `Observer` for the terminal. A context manager: the bar is live inside it."""

    def __init__(self, console: Console, *, steps: int) -> None:
        self._console = console
        self._steps = steps
        self._live = console.is_terminal
        self._rewards: deque[float] = deque(maxlen=_WIDTH)
        self._paces: deque[float] = deque(maxlen=_PACE_STEPS)
        self._last = self._said = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description:<8}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[note]}"),
            console=console,
            transient=True,
            disable=not self._live,
        )
        self._run: TaskID = self._progress.add_task("step", total=steps, note="")
        self._stage: TaskID = self._progress.add_task("", total=1, visible=False, note="")

    def __enter__(self) -> "Display":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """One line above the bar."""
        self._said = time.monotonic()
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def on_event(self, text: str) -> None:
        """Something a person wants to read."""
        self._last = time.monotonic()
        self.say(text)

    def on_stage(self, stage: str, done: int, planned: int) -> None:
        """Where the present step or evaluation is."""
        if not self._live and planned > 0 and time.monotonic() - self._said > _QUIET_S:
            self.say(f"{stage} {done}/{planned}")
        self._progress.update(
            self._stage, description=stage, completed=done, total=max(planned, 1), visible=planned > 0
        )

    def on_step(self, step: int, metrics: Mapping[str, float | int]) -> None:
        """One line per step, and the bar moved on."""
        now = time.monotonic()
        self._paces.append(float(metrics.get("time/step_s", now - self._last)))
        self._last = now
        if "reward/mean" in metrics:
            self._rewards.append(float(metrics["reward/mean"]))
        left = duration(median(self._paces) * (self._steps - step))
        self._progress.update(self._run, completed=step, note=f"{sparkline(self._rewards)}  ETA {left}")
        self._progress.update(self._stage, visible=False)
        self.say(f"step {step:>{len(str(self._steps))}}/{self._steps}  {step_line(metrics)}  ETA {left}")

    def on_eval(self, record: EvalRecord) -> None:
        """A held-out measurement."""
        self._last = time.monotonic()
        best = record.headline_estimate
        self._progress.update(self._stage, visible=False)
        self.say(
            f"held-out {record.headline} after {record.step} steps: {best.value:.3f} "
            f"({best.low:.3f} to {best.high:.3f}, {best.num_questions} questions, "
            f"{duration(record.duration_s)})"
            + (f"; {record.num_unjudged} completions unjudged" if record.num_unjudged else "")
        )


def step_line(metrics: Mapping[str, float | int]) -> str:
    """The numbers of a step that people watch; what a step has no value for is left out."""
    parts = []
    for text, name, form in (
        ("reward", "reward/mean", "{:.3f}"),
        ("collapsed", "advantage/collapsed_fraction", "{:.0%}"),
        ("unjudged", "verifier/unjudged_fraction", "{:.0%}"),
        ("tokens", "rollout/tokens_mean", "{:.0f}"),
        ("cut off", "rollout/truncated_fraction", "{:.0%}"),
        ("entropy", "policy/entropy", "{:.2f}"),
        ("gradient", "policy/grad_norm", "{:.3g}"),
        ("rollouts/s", "throughput/rollouts_per_s", "{:.1f}"),
        ("s", "time/step_s", "{:.1f}"),
    ):
        value = metrics.get(name)
        if value is None or (text in ("unjudged", "cut off") and value == 0):
            continue
        parts.append(f"{text} {form.format(value)}" if text != "s" else f"{form.format(value)} s")
    if metrics.get("policy/updates") == 0:
        parts.append("no signal, no update")
    return "  ".join(parts)


def sparkline(values: Iterable[float]) -> str:
    """Values as a row of blocks from their lowest to their highest.

    Example:
        >>> sparkline([0.0, 0.5, 1.0])
        '▁▄█'
    """
    known = list(values)
    if not known:
        return ""
    low, high = min(known), max(known)
    if high == low:
        return _LEVELS[0] * len(known)
    return "".join(_LEVELS[int((v - low) / (high - low) * (len(_LEVELS) - 1))] for v in known)


def duration(seconds: float) -> str:
    """Seconds in the unit a person would choose.

    Example:
        >>> duration(42), duration(150), duration(9000)
        ('42 s', '2.5 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def print_pairs(console: Console, pairs: Iterable[tuple[str, str]]) -> None:
    """Labels on the left, once each, text on the right."""
    last = ""
    for label, text in pairs:
        shown = label if label != last else ""
        console.print(f"{shown:<12}{text}", markup=False, highlight=False, soft_wrap=True)
        last = label


def print_table(console: Console, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Columns as wide as they need to be, numbers to the right; never cut to the terminal's width."""
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for first, *rest in lines:
        cells = [f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)]
        text = "  ".join([f"{first:<{widths[0]}}", *cells])
        console.print(text, markup=False, highlight=False, soft_wrap=True)
