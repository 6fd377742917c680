"""Every metric is listed, and the page that lists them is current."""

import math
from pathlib import Path

import pytest

from peira.errors import RunError
from peira.runs.metrics import METRICS, checked_metrics, metric_name, metric_of, metrics_page

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_a_misspelt_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(RunError, match=r"'reward/maen'.*nearest is 'reward/mean'"):
        checked_metrics({"reward/maen": 1.0})


def test_a_name_of_no_room_is_refused() -> None:
    with pytest.raises(RunError, match="expected a name listed"):
        metric_of("zzz")


def test_patterns_match_one_part_only() -> None:
    assert metric_of("score/math").name == "score/<channel>"
    assert metric_of("reward/source/gsm8k.jsonl").name == "reward/source/<source>"
    with pytest.raises(RunError):
        metric_of("score/math/extra")
    with pytest.raises(RunError):
        metric_of("score/")


def test_an_exact_name_wins_over_a_pattern() -> None:
    assert metric_of("eval/accuracy").name == "eval/accuracy"
    assert metric_of("eval/pass_at_4").name == "eval/<metric>"


@pytest.mark.parametrize("source", ["data/train set.jsonl", "a\nb", "", "über"])
def test_any_source_makes_a_name_that_is_listed(source: str) -> None:
    name = metric_name("reward/source/<source>", source=source)
    assert metric_of(name).name == "reward/source/<source>"


def test_filling_in_an_unlisted_pattern_is_refused() -> None:
    with pytest.raises(RunError, match="expected a name listed"):
        metric_name("nothing/like <this>", this="x")


def test_none_is_left_out_and_nan_is_kept() -> None:
    checked = checked_metrics({"reward/mean": None, "policy/loss": math.nan, "policy/updates": 2})
    assert set(checked) == {"policy/loss", "policy/updates"}
    assert math.isnan(checked["policy/loss"])


@pytest.mark.parametrize("value", ["0.5", True, [1.0]])
def test_what_is_not_a_number_is_refused(value: object) -> None:
    with pytest.raises(RunError, match="expected a number or None"):
        checked_metrics({"reward/mean": value})  # type: ignore[dict-item]


def test_healthy_ranges_include_their_ends_and_exclude_nan() -> None:
    metric = METRICS["mismatch/effective_fraction"]  # at least 0.9
    assert metric.healthy(0.9)
    assert not metric.healthy(0.89)
    assert not metric.healthy(math.nan)
    assert not METRICS["policy/loss"].healthy(math.inf)


def test_every_entry_says_what_it_means() -> None:
    for metric in METRICS.values():
        assert metric.meaning.endswith("."), metric.name
        assert metric.low is None or metric.high is None or metric.low < metric.high
        if metric.unit == "fraction":
            assert all(bound is None or 0 <= bound <= 1 for bound in (metric.low, metric.high)), metric.name


def test_docs_metrics_is_current() -> None:
    assert PAGE.read_text() == metrics_page(), "run: python -m peira.runs.metrics > docs/metrics.md"
