"""What all studies share: claims and verdicts, intervals over seeds, the table, the plot, the record.

A verdict compares an interval with what the claim says: it *holds* when the whole 95% interval is inside the
claimed range, *does not hold* when it is outside, and is *undecided* when it straddles an edge. Exact results
have an interval of width 0. What a quick run left out is *not measured*.
"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError
from scipy import stats

from peira.algorithms.family import Algorithm
from peira.build.algorithm import build_algorithm
from peira.config.algorithm import AlgorithmConfig
from peira.errors import ConfigError
from peira.studies import STUDIES

Verdict = Literal["holds", "does not hold", "undecided", "not measured"]
Arms = Mapping[str, Mapping[str, Any]]
"""Name of an arm -> settings of `algorithm`, as a recipe would give them."""
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A number with its 95% interval."""

    value: float
    low: float
    high: float
    num_seeds: int
    """What the interval runs over; 0 for an exact result."""

    def __str__(self) -> str:
        if self.low == self.high:
            return number(self.value)
        return f"{number(self.value)} [{number(self.low)}, {number(self.high)}]"


def exact(value: float) -> Measured:
    """A result without sampling."""
    return Measured(value=float(value), low=float(value), high=float(value), num_seeds=0)


def over_seeds(values: Any) -> Measured:
    """Mean over seeds, with Student's interval; give paired differences to compare arms on common seeds."""
    array = np.asarray(values, dtype=np.float64).ravel()
    mean, error = float(array.mean()), float(stats.sem(array)) if len(array) > 1 else math.inf
    if error == 0:
        return Measured(value=mean, low=mean, high=mean, num_seeds=len(array))
    if not math.isfinite(error):
        return Measured(value=mean, low=-math.inf, high=math.inf, num_seeds=len(array))
    low, high = stats.t.interval(CONFIDENCE, len(array) - 1, loc=mean, scale=error)
    return Measured(value=mean, low=float(low), high=float(high), num_seeds=len(array))


def share_of(count: int, total: int) -> Measured:
    """A share of cases, with the exact (Clopper-Pearson) interval."""
    found = stats.binomtest(count, total).proportion_ci(CONFIDENCE)
    return Measured(value=count / total, low=float(found.low), high=float(found.high), num_seeds=total)


def bootstrapped(statistic: Callable[..., Any], *samples: Any, paired: bool = False) -> Measured:
    """Any statistic of one or more samples over seeds, with a percentile bootstrap interval; seeded."""
    arrays = [np.asarray(sample, dtype=np.float64).ravel() for sample in samples]
    found = stats.bootstrap(
        arrays,
        statistic,
        paired=paired,
        vectorized=False,
        n_resamples=1999,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Measured(
        value=float(statistic(*arrays)),
        low=float(found.low),
        high=float(found.high),
        num_seeds=len(arrays[0]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What is claimed, how it is measured, and the range in which it holds."""

    name: str
    text: str
    how: str
    at_least: float = -math.inf
    at_most: float = math.inf

    def verdict(self, measured: Measured | None) -> Verdict:
        """Whether the interval lies inside, outside or across the claimed range; NaN decides nothing."""
        if measured is None:
            return "not measured"
        if measured.low >= self.at_least and measured.high <= self.at_most:
            return "holds"
        if measured.high < self.at_least or measured.low > self.at_most:
            return "does not hold"
        return "undecided"

    @property
    def range(self) -> str:
        """The claimed range in words."""
        if self.at_least == self.at_most:
            return f"= {number(self.at_least)}"
        if math.isinf(self.at_most):
            return f">= {number(self.at_least)}"
        if math.isinf(self.at_least):
            return f"<= {number(self.at_most)}"
        return f"{number(self.at_least)} to {number(self.at_most)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A number that an independent simulation or a closed form gives for the same set-up."""

    name: str
    value: float
    tolerance: float
    """Its own uncertainty: rounding, or two standard errors of that simulation."""
    measured: Measured

    @property
    def agrees(self) -> bool:
        """Whether the two differ by no more than the tolerance and 3.1 standard errors of what was measured.

        Wider than a verdict's interval: a page compares dozens of these, and one in twenty must not be a gap.
        """
        reach = self.tolerance + 1.6 * (self.measured.high - self.measured.low) / 2
        return abs(self.value - self.measured.value) <= reach


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One curve; `low` and `high` are a band."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dashed: bool = False
    """What theory says, beside what was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One chart: curves, or bars with intervals."""

    title: str
    x: str
    y: str
    lines: Sequence[Line] = ()
    bars: Mapping[str, Measured] = field(default_factory=dict)
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a study is run with."""

    arms: Mapping[str, AlgorithmConfig]
    num_seeds: int
    quick: bool = False
    first_seed: int = 0

    def algorithm(self, arm: str, *, channels: Mapping[str, float] | None = None) -> Algorithm:
        """The arm's functions, as a run would build them."""
        return build_algorithm(self.arms[arm], max_tokens=1, channels=channels)

    def generator(self, offset: int = 0) -> torch.Generator:
        """A fresh stream; equal offsets give arms common random numbers."""
        return torch.Generator().manual_seed(1_000_003 * (self.first_seed + 1) + offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a study measured; every claim's name appears, unless a quick run left it out."""

    measured: Mapping[str, Measured]
    expected: Sequence[Expected] = ()
    panels: Sequence[Panel] = ()
    notes: Sequence[str] = ()
    """Sentences that the reader needs beside the verdicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A question, its arms and claims, and the function that measures."""

    name: str
    setup: str
    """What is trained, in a few sentences."""
    source: str
    arms: Arms
    claims: Sequence[Claim]
    run: Callable[[Setting], Findings]
    seeds: int
    quick_seeds: int

    @property
    def question(self) -> str:
        """From the table of studies."""
        return STUDIES[self.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A study that was run."""

    study: Study
    setting: Setting
    findings: Findings
    duration_s: float
    changed: Sequence[str] = ()
    """Settings of arms that the caller changed: the verdicts are then about another experiment."""

    def verdicts(self) -> dict[str, Verdict]:
        """Claim -> verdict."""
        return {c.name: c.verdict(self.findings.measured.get(c.name)) for c in self.study.claims}

    def record(self) -> dict[str, Any]:
        """All of it as plain data, for the JSON file."""
        verdicts = self.verdicts()
        claims = [
            {
                "name": claim.name,
                "claim": claim.text,
                "how": claim.how,
                "range": claim.range,
                "measured": _plain(self.findings.measured.get(claim.name)),
                "verdict": verdicts[claim.name],
            }
            for claim in self.study.claims
        ]
        expected = [{**_plain(e), "agrees": e.agrees} for e in self.findings.expected]
        return {
            "study": self.study.name,
            "question": self.study.question,
            "setup": self.study.setup,
            "source": self.study.source,
            "arms": {name: _given(self.study.arms, name, arm) for name, arm in self.setting.arms.items()},
            "changed": list(self.changed),
            "num_seeds": self.setting.num_seeds,
            "first_seed": self.setting.first_seed,
            "quick": self.setting.quick,
            "duration_s": round(self.duration_s, 1),
            "claims": claims,
            "expected": expected,
            "notes": list(self.findings.notes),
            "panels": [_plain(panel) for panel in self.findings.panels],
        }


def _given(arms: Arms, name: str, config: AlgorithmConfig) -> dict[str, Any]:
    """The preset's name and whatever the arm says beyond it."""
    plain = config.model_dump(mode="json")
    base = AlgorithmConfig(name=config.name).model_dump(mode="json")
    return {"name": config.name} | {key: value for key, value in plain.items() if value != base[key]}


def _plain(value: Any) -> Any:
    """Dataclasses as dictionaries; infinities and NaN, which JSON does not have, as text."""
    if value is None:
        return None
    return _finite(asdict(value))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else str(value)
    return value


def number(value: float) -> str:
    """Four significant digits at most, without trailing zeros."""
    if not math.isfinite(value):
        return str(value)
    if value != 0 and (abs(value) < 1e-3 or abs(value) >= 1e5):
        return f"{value:.1e}"
    text = f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# ---- finding and running ----


def find(name: str) -> Study:
    """The study of this name.

    Raises:
        ConfigError: there is none.
    """
    if name not in STUDIES:
        near = get_close_matches(name, STUDIES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"study: name = {name!r}: expected one of {', '.join(STUDIES)}, or all{hint}")
    study = import_module(f"peira.studies.{name}").STUDY
    assert isinstance(study, Study)
    return study


def configured(study: Study, changes: Sequence[str] = ()) -> dict[str, AlgorithmConfig]:
    """The arms' algorithm settings, with `arm.setting=value` changes.

    Raises:
        ConfigError: an arm or a setting is not there, or a combination is refused.
    """
    given = OmegaConf.create({name: dict(arm) for name, arm in study.arms.items()})
    for change in changes:
        path, equals, value = change.partition("=")
        arm = path.split(".")[0]
        if not equals or "." not in path or arm not in study.arms:
            raise ConfigError(
                f"study {study.name}: {change!r}: expected arm.setting=value with an arm of "
                f"{', '.join(study.arms)}"
            )
        try:
            OmegaConf.update(given, path, yaml.safe_load(value), force_add=True)
        except (yaml.YAMLError, OmegaConfBaseException) as error:
            raise ConfigError(f"study {study.name}: {change!r}: expected a YAML value ({error})") from error
    found = {}
    for name in study.arms:
        try:
            found[name] = AlgorithmConfig.model_validate(OmegaConf.to_container(given[name]))
        except ValidationError as error:
            problems = (
                f"study {study.name}: {'.'.join([name, *map(str, p['loc'])])}: {p['msg']}"
                for p in error.errors()
            )
            raise ConfigError("\n".join(problems)) from error
    return found


def run_study(
    study: Study,
    *,
    num_seeds: int | None = None,
    quick: bool = False,
    first_seed: int = 0,
    changes: Sequence[str] = (),
) -> Result:
    """Measure a study's claims.

    Args:
        num_seeds: independent copies; the study's own number, or its quick one, when None.
        changes: `arm.setting=value`; the verdicts are then about the changed arms.

    Raises:
        ConfigError: a change is refused, or the seeds are fewer than two.
    """
    seeds = num_seeds if num_seeds is not None else (study.quick_seeds if quick else study.seeds)
    if seeds < 2:
        raise ConfigError(f"study: --seeds = {seeds}: expected 2 or more; an interval needs them")
    setting = Setting(arms=configured(study, changes), num_seeds=seeds, quick=quick, first_seed=first_seed)
    started = time.monotonic()
    findings = study.run(setting)
    unknown = set(findings.measured) - {claim.name for claim in study.claims}
    assert not unknown, f"measured without a claim: {unknown}"
    missing = {claim.name for claim in study.claims} - set(findings.measured)
    assert quick or not missing, f"claims not measured: {missing}"
    return Result(
        study=study,
        setting=setting,
        findings=findings,
        duration_s=time.monotonic() - started,
        changed=tuple(changes),
    )


def with_arms(study: Study, **arms: Mapping[str, Any]) -> Study:
    """The study with some arms replaced: to see whether a verdict notices a broken ingredient."""
    assert set(arms) <= set(study.arms)
    return replace(study, arms={**study.arms, **arms})


# ---- what is left behind ----


def write(result: Result, folder: Path) -> tuple[Path, Path]:
    """NAME.json and NAME.png in the folder, then the page FOLDER.md of all studies found there."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / f"{result.study.name}.json"
    data.write_text(json.dumps(result.record(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    picture = folder / f"{result.study.name}.png"
    draw(result.findings.panels, picture)
    return data, picture


def draw(panels: Sequence[Panel], path: Path) -> None:
    """All panels side by side, two in a row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(2, max(1, len(panels)))
    rows = max(1, math.ceil(len(panels) / columns))
    figure = Figure(figsize=(5.2 * columns, 3.6 * rows), dpi=90, layout="constrained")
    FigureCanvasAgg(figure)
    for index, panel in enumerate(panels):
        axes = figure.add_subplot(rows, columns, index + 1)
        for line in panel.lines:
            style: dict[str, Any] = {"linestyle": "--", "color": "black"} if line.dashed else {}
            width = 0.8 if line.dashed else 1.4
            (curve,) = axes.plot(line.x, line.y, label=line.name, linewidth=width, **style)
            if line.low:
                axes.fill_between(line.x, line.low, line.high, color=curve.get_color(), alpha=0.15)
        if panel.bars:
            names, values = list(panel.bars), list(panel.bars.values())
            spread = [[v.value - v.low for v in values], [v.high - v.value for v in values]]
            spread = [[e if math.isfinite(e) else 0.0 for e in side] for side in spread]
            axes.barh(names, [v.value for v in values], xerr=spread, color="#4c78a8", capsize=3, height=0.6)
            axes.invert_yaxis()
        if panel.log_x:
            axes.set_xscale("log")
        if panel.log_y:
            axes.set_yscale("log")
        axes.set_title(panel.title, fontsize=10)
        axes.set_xlabel(panel.x, fontsize=9)
        axes.set_ylabel(panel.y, fontsize=9)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.25)
        if panel.lines:
            axes.legend(fontsize=7)
    figure.savefig(path, metadata={"Software": None})
