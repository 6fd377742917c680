"""Charts say what the numbers say."""

import json
import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peira.plots.chart import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MAX_POINTS,
    RIGHT,
    TOP,
    WIDTH,
    Chart,
    Series,
    legend,
    pretty,
    svg,
)

NAME = "{http://www.w3.org/2000/svg}"


def parsed(chart: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(svg(chart))


def chart(*series: Series, **more: object) -> Chart:
    return Chart(title="t", note="", unit="", series=series, **more)  # type: ignore[arg-type]


def line_paths(element: ElementTree.Element) -> list[str]:
    return [path.attrib["d"] for path in element.iter("path") if "line" in path.attrib["class"].split()]


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)", path)]


def test_a_line_runs_from_corner_to_corner_of_its_axis() -> None:
    # 0 to 1 are ticks themselves, so the axis ends there: bottom left to top right
    element = parsed(chart(Series(name="a", steps=[1, 3], values=[0.0, 1.0])))
    ((first, last),) = [points(path) for path in line_paths(element)]
    assert first == (LEFT, HEIGHT - BOTTOM)
    assert last == (WIDTH - RIGHT, TOP)


def test_a_number_that_is_not_finite_is_a_gap() -> None:
    values = [0.0, 1.0, math.nan, 0.5, math.inf, 1.0]
    element = parsed(chart(Series(name="a", steps=range(6), values=values)))
    (path,) = line_paths(element)
    assert path.count("M") == 3  # 0 1 | 0.5 | 1
    assert len(points(path)) == 4


def test_layers_of_a_stack_add_up() -> None:
    layers = [Series(name=n, steps=[1, 2], values=v) for n, v in (("a", [1.0, 2.0]), ("b", [3.0, 2.0]))]
    element = parsed(chart(*layers, stacked=True))
    lower, upper = (points(path.attrib["d"]) for path in element.iter("path"))
    # both steps add up to 4, the top of the axis; the upper layer's floor is the lower layer's edge
    assert [y for _, y in upper[:2]] == [TOP, TOP]
    assert upper[2:] == lower[:2][::-1]
    data = json.loads(element.attrib["data-chart"])
    assert [series["at"] for series in data["series"]] == [{"1": 1.0, "2": 2.0}, {"1": 3.0, "2": 2.0}]


def test_a_layer_that_has_no_number_at_a_step_counts_as_nothing_there() -> None:
    layers = [
        Series(name="a", steps=[1, 2, 3], values=[1.0, math.nan, 1.0]),
        Series(name="b", steps=[2], values=[2.0]),
    ]
    _, upper = (points(path.attrib["d"]) for path in parsed(chart(*layers, stacked=True)).iter("path"))
    low, high = HEIGHT - BOTTOM, TOP
    # sums 1, 2, 1 on an axis from 0 to 2
    assert [y for _, y in upper[:3]] == [(low + high) / 2, high, (low + high) / 2]


def test_long_series_are_thinned_to_means_with_their_extremes() -> None:
    steps = range(MAX_POINTS * 10)
    values = [float(step % 2) for step in steps]  # every bucket of ten has mean 1/2, extremes 0 and 1
    element = parsed(chart(Series(name="a", steps=steps, values=values)))
    (path,) = line_paths(element)
    heights = {y for _, y in points(path)}
    assert len(points(path)) == MAX_POINTS
    assert heights == {TOP + (HEIGHT - TOP - BOTTOM) / 2}
    (spread,) = [path.attrib["d"] for path in element.iter("path") if "spread" in path.attrib["class"]]
    assert {y for _, y in points(spread)} == {TOP, HEIGHT - BOTTOM}


def test_a_logarithmic_axis_puts_a_factor_of_ten_at_equal_distances() -> None:
    element = parsed(chart(Series(name="a", steps=[1, 2, 3], values=[1e-6, 1e-5, 1e-4]), log=True))
    (path,) = line_paths(element)
    assert [y for _, y in points(path)] == [HEIGHT - BOTTOM, (HEIGHT - BOTTOM + TOP) / 2, TOP]


def test_zero_keeps_an_axis_linear() -> None:
    element = parsed(chart(Series(name="a", steps=[1, 2], values=[0.0, 1e-4]), log=True))
    (path,) = line_paths(element)
    assert [y for _, y in points(path)] == [HEIGHT - BOTTOM, TOP]


def test_the_healthy_range_is_cut_to_what_is_shown() -> None:
    values = Series(name="a", steps=[1, 2], values=[0.0, 1.0])
    (band,) = parsed(chart(values, healthy=(0.5, None))).iter("rect")
    assert float(band.attrib["y"]) == TOP
    assert float(band.attrib["height"]) == pytest.approx((HEIGHT - TOP - BOTTOM) / 2, abs=0.1)
    assert not list(parsed(chart(values, healthy=(None, -3.0))).iter("rect"))


def test_hostile_names_cannot_leave_their_attribute() -> None:
    name = "\"><script>alert('x')</script>&"
    element = parsed(chart(Series(name=name, steps=[1, 2], values=[0.0, 1.0])))
    assert json.loads(element.attrib["data-chart"])["series"][0]["name"] == name
    assert not list(element.iter("script"))


def test_nothing_recorded_is_said_in_words() -> None:
    assert "nothing recorded" in svg(chart(Series(name="a", steps=[], values=[])))
    assert "nothing recorded" in svg(chart(Series(name="a", steps=[1], values=[math.nan])))


def test_a_single_line_needs_no_legend_and_empty_ones_are_not_in_it() -> None:
    one = Series(name="a", steps=[1], values=[1.0])
    assert legend(chart(one)) == []
    other = Series(name="b", steps=[1], values=[1.0], colour=5)
    empty = Series(name="c", steps=[1], values=[math.nan])
    assert legend(chart(one, empty, other)) == [("c0", "a"), ("c5", "b")]


@given(
    st.lists(
        st.floats(allow_nan=True, allow_infinity=True, min_value=None, max_value=None, width=32), min_size=1
    ),
    st.booleans(),
    st.booleans(),
)
def test_any_numbers_make_a_chart_that_stays_in_its_frame(
    values: list[float], stacked: bool, log: bool
) -> None:
    if stacked:
        values = [abs(value) for value in values]
    drawn = svg(chart(Series(name="a", steps=range(len(values)), values=values), stacked=stacked, log=log))
    if "nothing recorded" in drawn:
        assert not any(map(math.isfinite, values))
        return
    for path in ElementTree.fromstring(drawn).iter("path"):
        for x, y in points(path.attrib["d"]):
            assert LEFT <= x <= WIDTH - RIGHT
            assert TOP <= y <= HEIGHT - BOTTOM


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.6912, "fraction", "69.1 %"),
        (math.nan, "", "nan"),
        (0.0, "nats", "0"),
        (1536.0, "bytes", "1.5 KiB"),
        (-0.25, "", "-0.25"),
    ],
)
def test_numbers_are_written_for_people(value: float, unit: str, text: str) -> None:
    assert pretty(value, unit) == text
