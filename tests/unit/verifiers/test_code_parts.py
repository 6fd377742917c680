"""Comparison, extraction, flags and the arithmetic of the gap, without running anything."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peira.sandbox.guest import Foreign
from peira.types.task import Task
from peira.verifiers.code.compare import Comparison
from peira.verifiers.code.extract import code_blocks, extract_code
from peira.verifiers.code.gap import (
    GapReport,
    composition_gap,
    interquartile_mean,
    macro_gap,
    selection_regret,
    size_slope,
)
from peira.verifiers.code.special_casing import special_casing
from peira.verifiers.code.suite import read_suite

EXACT = Comparison()
LOOSE = Comparison(containers="loose")
NEAR = Comparison(float_tolerance=1e-3)


@pytest.mark.parametrize(
    ("rules", "got", "expected", "same"),
    [
        (EXACT, 1, 1, True),
        (EXACT, True, 1, False),
        (EXACT, 1, True, False),
        (EXACT, 1.0, 1, False),
        (EXACT, 1, 1.0, False),
        (EXACT, "1", 1, False),
        (EXACT, None, None, True),
        (EXACT, 0.1 + 0.2, 0.3, False),
        (EXACT, [1, [2, 3]], [1, [2, 3]], True),
        (EXACT, [1, [2, True]], [1, [2, 1]], False),
        (EXACT, (1, 2), [1, 2], False),
        (EXACT, [1, 2], [1, 2, 3], False),
        (EXACT, {1, 2}, {2, 1}, True),
        (EXACT, {True, 2}, {1, 2}, False),
        (EXACT, {"a": 1}, {"a": 1}, True),
        (EXACT, {"a": True}, {"a": 1}, False),
        (EXACT, {True: "x"}, {1: "x"}, False),
        (EXACT, {"a": 1, "b": 2}, {"a": 1}, False),
        (EXACT, math.nan, math.nan, False),
        (Comparison(nan_equal=True), math.nan, math.nan, True),
        (Comparison(nan_equal=True), 1.0, math.nan, False),
        (EXACT, Foreign("Counter", {"a": 1}), {"a": 1}, False),
        (LOOSE, Foreign("Counter", {"a": 1}), {"a": 1}, True),
        (LOOSE, Foreign("Liar"), 3, False),
        (LOOSE, ((1, 2), [3]), [[1, 2], [3]], True),
        (LOOSE, frozenset({1}), {1}, True),
        (LOOSE, True, 1, False),
        (LOOSE, {1, 2}, [1, 2], False),
        (NEAR, 0.1 + 0.2, 0.3, True),
        (NEAR, 3, 3.0, True),
        (NEAR, True, 1.0, False),
        (NEAR, 3.0, 3, False),
        (NEAR, [1.0004], [1.0], True),
        (NEAR, [1.01], [1.0], False),
        (NEAR, math.inf, 1.0, False),
        (NEAR, math.inf, math.inf, True),
        (NEAR, math.nan, math.nan, False),
        (NEAR, 10**400, 1.0, False),
    ],
)
def test_values_are_compared_by_type_and_then_by_content(rules, got, expected, same):
    assert rules.same(got, expected) is same


@pytest.mark.parametrize(
    ("rules", "got", "expected", "same"),
    [
        (EXACT, b"3\n", "3", True),
        (EXACT, b"3  \n4\n\n\n", "3\n4", True),
        (EXACT, b" 3", "3", False),
        (EXACT, b"3\n\n4", "3\n4", False),
        (EXACT, b"3 4", "3\n4", False),
        (EXACT, b"1\n2\n3", "3", False),
        (EXACT, b"", "", True),
        (EXACT, b"\xff", "3", False),
        (Comparison(whitespace="exact"), b"3\n", "3", False),
        (Comparison(whitespace="exact"), b"3", "3", True),
        (Comparison(whitespace="tokens"), b" 3\n4 ", "3 4", True),
        (Comparison(whitespace="tokens"), b"34", "3 4", False),
        (NEAR, b"0.3333\n", "0.33333", True),
        (NEAR, b"0.33\n", "0.33333", False),
        (NEAR, b"5.0", "5", False),
        (NEAR, b"nan", "1.0", False),
        (NEAR, b"0x1", "1.0", False),
        (NEAR, b"1_0.0", "10.0", True),
        (NEAR, "\u0663.0".encode(), "3.0", False),
        (NEAR, b"9" * 5000 + b".0", "1.0", False),
    ],
)
def test_output_is_compared_whole(rules, got, expected, same):
    assert rules.same_output(got, expected) is same


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\na\n```", "a\n"),
        ("```\na\n```", "a\n"),
        ("~~~py\na\n~~~", "a\n"),
        ("````python\n```\na\n```\n````", "```\na\n```\n"),
        ("```python\na\n```\n```\nb\n```", "b\n"),
        ("```python\na\n```\n```bash\nb\n```", "a\n"),
        ("```python title=x\na\n```", "a\n"),
        ("```Python\r\na\n```", "a\n"),
        ("```python\na", None),
        ("```js\na\n```", None),
        ("a", None),
        ("", None),
        ("```python\n\n```", None),
        ("<think>```python\na\n```</think>", None),
        ("<think>x</think>```python\na\n```", "a\n"),
        ("<think>x</think>\n```python\na\n```", "a\n"),
        ("<think>\n```python\na\n```", None),
        ("```python\n" + "x" * 300_000 + "\n```", None),
    ],
)
def test_the_last_closed_block_of_the_language_is_the_program(text, code):
    assert extract_code(text, ("python", "py")) == code


@given(st.text(alphabet="`~ \npython<think>/", max_size=80))
def test_no_text_breaks_the_extractor(text):
    assert all(isinstance(part, str) for block in code_blocks(text) for part in block)
    extract_code(text, ("python",))


def test_nothing_in_a_text_costs_more_than_its_length():
    lists = "[" * 190 + "]" * 190
    start = time.monotonic()
    for text in (
        "```" + " " * 200_000 + "`",
        "```python\n" * 50_000,
        "`" * 500_000,
        ("```" + " " * 1_000 + "`\n") * 500,
    ):
        extract_code(text, ("python",))
    special_casing(f"x = [{', '.join([lists] * 50)}]", SQUARES)
    special_casing("x = [" + "1, " * 60_000 + "]", SQUARES)
    special_casing("x = " + "-" * 19_000 + "1", SQUARES)
    special_casing("x = " + "1 + " * 4_500 + "1", SQUARES)
    assert time.monotonic() - start < 10  # a quadratic step would take minutes


def suite(*pairs):
    rows = [{"args": list(args), "expected": expected} for args, expected in pairs]
    return read_suite(Task(id="t", prompt="", info={"tests": rows, "entry_point": "f"}), "tests")


SQUARES = suite(((12,), 144), ((13,), 169), ((14,), 196))
WORDS = suite((("abc",), "abcabc"), (("xyz",), "xyzxyz"))


@pytest.mark.parametrize(
    ("source", "tests", "flags"),
    [
        ("def f(n): return n * n", SQUARES, ()),
        ("def f(n): return {12: 144, 13: 169}[n]", SQUARES, ("lookup_table",)),
        ("def f(n):\n    if n == 12: return 144\n    if n == 13: return 169", SQUARES, ("lookup_table",)),
        (
            "def f(n):\n    match n:\n        case 12: return 144\n        case 14: return 196",
            SQUARES,
            ("lookup_table",),
        ),
        ("def f(n): return n * n if n != 12 else 144", SQUARES, ()),
        ("def f(s): return ['abcabc', 'xyzxyz'][ord(s[0]) % 2]", WORDS, ("test_literals",)),
        ("import os\ndef f(n): os._exit(0)", SQUARES, ("exits",)),
        ("import builtins, _pytest.assertion", SQUARES, ("touches_harness",)),
        ("def f(:", SQUARES, ()),
        ("(" * 5000, SQUARES, ()),
    ],
)
def test_signs_of_special_casing_become_flags(source, tests, flags):
    assert special_casing(source, tests) == flags


def report(visible, heldout, task_id="t"):
    return GapReport(
        task_id=task_id,
        visible_passed=visible[0],
        visible_total=visible[1],
        heldout_passed=heldout[0],
        heldout_total=heldout[1],
    )


JSON_PARSER = report((45, 45), (173, 178))  # 100 - 97.1910 = 2.8090
COMPILER = report((97, 100), (0, 100))  # a table of the visible tests
GENUINE = report((53, 100), (43, 100))
SQL = report((100, 100), (35, 100))


def test_the_gap_is_percentage_points_and_not_clipped():
    assert JSON_PARSER.gap == pytest.approx(2.8090, abs=5e-5)
    assert [COMPILER.gap, GENUINE.gap, SQL.gap] == pytest.approx([97, 10, 65])
    assert report((80, 100), (90, 100)).gap == pytest.approx(-10)
    assert macro_gap([COMPILER, GENUINE, SQL, JSON_PARSER]) == pytest.approx(43.7022, abs=5e-5)


def test_the_macro_gap_is_not_the_pooled_gap():
    # task 1: 100 - 50; task 2: 100 - 90; pooled: 100/100 - 86/100
    assert macro_gap([report((10, 10), (5, 10)), report((90, 90), (81, 90))]) == pytest.approx(30)


def test_choosing_by_the_visible_score_keeps_the_table():
    # kept: held-out 0; best: held-out 43
    assert selection_regret([COMPILER, GENUINE]) == pytest.approx(43)


def test_the_interquartile_mean_is_that_of_the_middle_half():
    # middle half of eight: 10, 20, 30, 50
    assert interquartile_mean([97, 0, 10, 2, 90, 20, 50, 30]) == pytest.approx(27.5)


def test_the_slope_is_points_per_tenfold_size():
    fit = size_slope((1500, 5000, 15000, 50000, 110000), (2, 10, 25, 40, 55))
    assert (fit.slope, fit.intercept, fit.r_squared) == pytest.approx((28.5042, -92.1293, 0.97724), abs=5e-5)


@pytest.mark.parametrize(
    ("features", "gap"), [(1, 0.0), (2, 4.75), (4, 13.5494), (8, 28.6580), (16, 50.9873)]
)
def test_a_gap_appears_without_cheating_when_tests_compose_features(features, gap):
    # 100 * (0.95 - 0.95**k)
    assert composition_gap(0.95, features) == pytest.approx(gap, abs=5e-5)


def test_no_tests_are_no_perfect_score():
    with pytest.raises(ValueError, match="expected tests on both sides"):
        report((0, 0), (1, 1))
