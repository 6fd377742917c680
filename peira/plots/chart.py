"""Line and area charts as inline SVG: readable without a script, coloured by the page's style sheet.

A chart carries its numbers in a `data-chart` attribute; the page's script shows them under the pointer. Long
series are thinned to `MAX_POINTS` buckets: the line is each bucket's mean, a pale band shows its extremes.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

MAX_POINTS = 400
WIDTH, HEIGHT = 400, 180
LEFT, RIGHT, TOP, BOTTOM = 50, 10, 10, 24
_Place = Callable[[float], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line, or one layer of a stack."""

    name: str
    steps: Sequence[int]
    values: Sequence[float]
    """NaN and infinities leave gaps."""
    low: Sequence[float] = ()
    """Lower ends of intervals, when the values are estimates; drawn as error bars."""
    high: Sequence[float] = ()
    colour: int | None = None
    """Which of the page's eight colours; by place when None."""
    smooth: bool = False
    """Draw the values pale and a running mean over a twentieth of the run bold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A titled chart with what it means."""

    title: str
    note: str
    unit: str
    series: Sequence[Series]
    stacked: bool = False
    log: bool = False
    """Logarithmic axis when every finite value is positive and they span more than a factor of 30."""
    healthy: tuple[float | None, float | None] = (None, None)
    """Drawn as a band."""
    bounds: tuple[float | None, float | None] = (None, None)
    """Ends of the axis that the numbers do not decide: (0, 1) for fractions."""
    wide: bool = False


@dataclass(slots=True)
class _Axis:
    low: float
    high: float
    log: bool
    ticks: list[float] = field(default_factory=list)

    def place(self, value: float) -> float:
        """0 at the bottom, 1 at the top; outside values are held at the edge."""
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        if self.log:
            value = math.log10(max(value, self.low))
        return min(1.0, max(0.0, (value - low) / (high - low)))


def svg(chart: Chart) -> str:
    """The chart as an SVG element, with a description for those who do not see it."""
    drawn = [_thin(series) for series in chart.series if any(map(math.isfinite, series.values))]
    if not drawn:
        return '<p class="nothing">nothing recorded</p>'
    if chart.stacked:
        drawn = _stack(drawn)
    first = min(series.steps[0] for series in drawn)
    last = max(series.steps[-1] for series in drawn)
    axis = _axis(chart, drawn)
    single = first == last

    def x(step: float) -> float:
        span = WIDTH - LEFT - RIGHT
        return LEFT + (span / 2 if single else span * (step - first) / (last - first))

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - axis.place(value))

    parts = [_healthy_band(chart, axis, y), *_grid(axis, chart.unit, y), *_step_labels(first, last, x)]
    below: _Thinned | None = None
    for index, series in enumerate(drawn):
        colour = series.colour = series.colour or f"c{index % 8}"
        if chart.stacked:
            parts.append(_area(series, below, colour, x, y))
            below = series
        else:
            parts += _line(series, colour, x, y)
    data = {
        "steps": sorted({step for series in drawn for step in series.steps}),
        "series": [
            {
                "name": s.name,
                "at": dict(zip(s.steps, map(_number, s.shown), strict=True)),
                "colour": s.colour,
            }
            for s in drawn
        ],
        "unit": chart.unit,
        "x": [LEFT, WIDTH - RIGHT, first, last],
    }
    label = escape(f"{chart.title}. {_summary(chart, drawn)}", quote=True)
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}" '
        f'data-chart="{escape(json.dumps(data, separators=(",", ":")), quote=True)}">'
        + "".join(parts)
        + f'<line class="cursor" x1="0" x2="0" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/></svg>'
    )


def legend(chart: Chart) -> list[tuple[str, str]]:
    """(colour class, name) of each series that is drawn; empty when there is only one line."""
    drawn = [series for series in chart.series if any(map(math.isfinite, series.values))]
    if len(drawn) < 2:
        return []
    return [(_colour(series) or f"c{index % 8}", series.name) for index, series in enumerate(drawn)]


def pretty(value: float, unit: str = "") -> str:
    """A number for people: three significant digits, percent, thousands, or bytes.

    Example:
        >>> pretty(0.0312, "fraction"), pretty(12345.6), pretty(3.2e-7), pretty(2.5e9, "bytes")
        ('3.1 %', '12,346', '3.2e-07', '2.33 GiB')
    """
    if not math.isfinite(value):
        return str(value)
    match unit:
        case "fraction":
            return f"{100 * value:.1f} %"
        case "bytes":
            for name in ("B", "KiB", "MiB"):
                if abs(value) < 1024:
                    return f"{value:.3g} {name}"
                value /= 1024
            return f"{value:.3g} GiB"
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 1e-3 else f"{value:.2g}"


@dataclass(slots=True)
class _Thinned:
    name: str
    steps: list[int]
    values: list[float]
    lows: list[float]
    highs: list[float]
    bars: bool
    smooth: bool
    colour: str
    shown: list[float]
    """What the pointer reads: a layer's own height rather than the top of its stack."""


def _thin(series: Series) -> _Thinned:
    steps, values = list(series.steps), list(series.values)
    if len(steps) <= MAX_POINTS:
        bars = bool(series.low)
        lows, highs = (list(series.low), list(series.high)) if bars else (values, values)
        return _Thinned(series.name, steps, values, lows, highs, bars, series.smooth, _colour(series), values)
    size = math.ceil(len(steps) / MAX_POINTS)
    thinned = _Thinned(series.name, [], [], [], [], False, series.smooth, _colour(series), [])
    for start in range(0, len(steps), size):
        block = [value for value in values[start : start + size] if math.isfinite(value)] or [math.nan]
        thinned.steps.append(steps[min(start + size // 2, len(steps) - 1)])
        thinned.values.append(sum(block) / len(block))
        thinned.lows.append(min(block))
        thinned.highs.append(max(block))
    thinned.shown = thinned.values
    return thinned


def _colour(series: Series) -> str:
    return "" if series.colour is None else f"c{series.colour % 8}"


def _stack(layers: list[_Thinned]) -> list[_Thinned]:
    """Each layer's values become the top of the layers up to it, on the steps that any layer has."""
    steps = sorted({step for layer in layers for step in layer.steps})
    top = [0.0] * len(steps)
    stacked = []
    for layer in layers:
        own = dict(zip(layer.steps, layer.values, strict=True))
        heights = [value if math.isfinite(value := own.get(step, 0.0)) else 0.0 for step in steps]
        top = [a + b for a, b in zip(top, heights, strict=True)]
        stacked.append(_Thinned(layer.name, steps, top, top, top, False, False, layer.colour, heights))
    return stacked


def _axis(chart: Chart, drawn: list[_Thinned]) -> _Axis:
    finite = [
        v for series in drawn for v in (*series.values, *series.lows, *series.highs) if math.isfinite(v)
    ]
    low, high = min(finite), max(finite)
    if chart.log and low > 0 and high / low > 30:
        axis = _Axis(10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high)), log=True)
        decades = range(round(math.log10(axis.low)), round(math.log10(axis.high)) + 1)
        axis.ticks = [10.0**power for power in decades][:: max(1, math.ceil(len(decades) / 5))]
        return axis
    low = min(low, chart.bounds[0]) if chart.bounds[0] is not None else low
    high = max(high, chart.bounds[1]) if chart.bounds[1] is not None else high
    if chart.stacked or low > 0 > low - (high - low):
        low = min(low, 0.0)
    if low == high:
        low, high = (low - abs(low) * 0.5, high + abs(high) * 0.5) if low else (0.0, 1.0)
    unit = 2.0**30 if chart.unit == "bytes" else 1.0  # round numbers of what the labels say
    size = unit * 10 ** math.floor(math.log10((high - low) / unit / 4))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if (high - low) / (size * factor) <= 5)
    start, end = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [index * step for index in range(start, end + 1)]
    return _Axis(ticks[0], ticks[-1], log=False, ticks=ticks)


def _healthy_band(chart: Chart, axis: _Axis, y: _Place) -> str:
    low, high = chart.healthy
    if low is None and high is None:
        return ""
    top = y(high) if high is not None else TOP
    bottom = y(low) if low is not None else HEIGHT - BOTTOM
    if bottom - top < 0.5:
        return ""
    return (
        f'<rect class="healthy" x="{LEFT}" y="{top:.1f}" width="{WIDTH - LEFT - RIGHT}" '
        f'height="{bottom - top:.1f}"><title>healthy range</title></rect>'
    )


def _grid(axis: _Axis, unit: str, y: _Place) -> list[str]:
    scale, sign = (100.0, " %") if unit == "fraction" and not axis.log else (1.0, "")
    if unit == "bytes":
        scale, sign = 1 / 2**30, " GiB"
    spread = (axis.high - axis.low) * scale
    return [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
        f'<text class="tick" x="{LEFT - 7}" y="{y(tick) + 3.5:.1f}" text-anchor="end">'
        f"{_tick(tick * scale, spread, axis.log)}{sign}</text>"
        for tick in axis.ticks
    ]


def _step_labels(first: int, last: int, x: _Place) -> list[str]:
    marks = {first, last}
    if last - first >= 4:
        size = 10 ** math.floor(math.log10((last - first) / 4))
        step = max(1, round(next(size * f for f in (1, 2, 5, 10) if (last - first) / (size * f) <= 6)))
        room = (last - first) / 9
        inner = range(math.ceil(first / step) * step, last, step)
        marks |= {mark for mark in inner if mark - first > room and last - mark > room}
    return [
        f'<text class="tick" x="{x(mark):.1f}" y="{HEIGHT - 8}" '
        f'text-anchor="{"end" if mark == last != first else "middle"}">{mark:,}</text>'
        for mark in sorted(marks)
    ]


def _line(series: _Thinned, colour: str, x: _Place, y: _Place) -> list[str]:
    parts = []
    if series.bars:
        parts += [
            f'<path class="whisker {colour}" d="M{x(s):.1f},{y(low):.1f}V{y(high):.1f}"/>'
            for s, low, high in zip(series.steps, series.lows, series.highs, strict=True)
        ]
    elif series.lows is not series.values:
        top = [
            f"{x(s):.1f},{y(v):.1f}"
            for s, v in zip(series.steps, series.highs, strict=True)
            if math.isfinite(v)
        ]
        low = [
            f"{x(s):.1f},{y(v):.1f}"
            for s, v in zip(series.steps, series.lows, strict=True)
            if math.isfinite(v)
        ]
        parts.append(f'<path class="spread {colour}" d="M{"L".join([*top, *reversed(low)])}Z"/>')
    pale = " pale" if series.smooth and len(series.values) > 10 else ""
    parts.append(f'<path class="line {colour}{pale}" d="{_path(series.steps, series.values, x, y)}"/>')
    if pale:
        parts.append(
            f'<path class="line {colour}" d="{_path(series.steps, _running_mean(series.values), x, y)}"/>'
        )
    if len(series.steps) <= 40 and not pale:
        parts += [
            f'<circle class="dot {colour}" cx="{x(s):.1f}" cy="{y(v):.1f}" r="{3.5 if series.bars else 2}"/>'
            for s, v in zip(series.steps, series.values, strict=True)
            if math.isfinite(v)
        ]
    return parts


def _area(series: _Thinned, below: _Thinned | None, colour: str, x: _Place, y: _Place) -> str:
    floor = below.values if below else [0.0] * len(series.steps)
    if len(series.steps) == 1:  # one step has no extent: draw a bar
        left, peak = x(series.steps[0]) - 20, y(series.values[0])
        size = f'width="40" height="{y(floor[0]) - peak:.1f}"'
        return f'<rect class="area {colour}" x="{left:.1f}" y="{peak:.1f}" {size}/>'
    top = [f"{x(s):.1f},{y(v):.1f}" for s, v in zip(series.steps, series.values, strict=True)]
    bottom = [f"{x(s):.1f},{y(v):.1f}" for s, v in zip(series.steps, floor, strict=True)]
    return f'<path class="area {colour}" d="M{"L".join([*top, *reversed(bottom)])}Z"/>'


def _path(steps: Sequence[int], values: Sequence[float], x: _Place, y: _Place) -> str:
    """A polyline with a gap at every number that is not finite."""
    words = []
    pen = "M"
    for step, value in zip(steps, values, strict=True):
        if math.isfinite(value):
            words.append(f"{pen}{x(step):.1f},{y(value):.1f}")
            pen = "L"
        else:
            pen = "M"
    return "".join(words)


def _running_mean(values: Sequence[float]) -> list[float]:
    """The mean over a window centred on each value, a twentieth of the series wide."""
    reach = max(1, len(values) // 40)
    means = []
    for index in range(len(values)):
        block = [v for v in values[max(0, index - reach) : index + reach + 1] if math.isfinite(v)]
        means.append(sum(block) / len(block) if block else math.nan)
    return means


def _summary(chart: Chart, drawn: list[_Thinned]) -> str:
    said = []
    for series in drawn:
        finite = [value for value in series.shown if math.isfinite(value)]
        said.append(
            f"{series.name}: from {pretty(finite[0], chart.unit)} to {pretty(finite[-1], chart.unit)}, "
            f"between {pretty(min(finite), chart.unit)} and {pretty(max(finite), chart.unit)}"
        )
    return "; ".join(said)


def _tick(value: float, spread: float, log: bool) -> str:
    if value == 0:
        return "0"
    if log or abs(value) < 1e-3 or abs(value) >= 1e7:
        return f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-").replace("e+0", "e")
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:g}k"
    digits = max(0, 2 - math.floor(math.log10(spread))) if spread < 100 else 0
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _number(value: float) -> float | str:
    return float(f"{value:.4g}") if math.isfinite(value) else str(value)
