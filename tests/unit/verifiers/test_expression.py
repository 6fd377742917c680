"""Expressions are read by a closed grammar and are equal when their values are."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peira.verifiers.evaluation import constant, equal, evaluate, proportional
from peira.verifiers.expression import Unreadable, read_expression


def value(text):
    return constant(read_expression(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2+3*4", 14),
        ("2-3-4", -5),
        ("12/3/2", 2),
        ("-2^2", -4),  # the power binds tighter than the sign
        ("(-2)^2", 4),
        (r"2^{-2}", Fraction(1, 4)),
        (r"\frac12", Fraction(1, 2)),
        (r"\frac{1}{2}3", Fraction(3, 2)),
        (r"\sqrt{\frac{4}{9}}", Fraction(2, 3)),
        (r"\sqrt[3]{27}", 3),
        ("8^{2/3}", 4),
        ("5!", 120),
        (r"\binom{5}{2}", 10),
        ("3!!", None),
        (r"|{-3}|", 3),
        (r"\lfloor 3.7 \rfloor+\lceil 3.2 \rceil", 7),
        ("gcd(12, 18)+lcm(4, 6)", 18),
        ("max(1, 5, 3)-min(1, 5, 3)", 4),
        (r"50\%", Fraction(1, 2)),
        ("1.25", Fraction(5, 4)),
        (r"2\cdot(1+2)", 6),
        ("2(3)", 6),
    ],
)
def test_values_worked_out_by_hand(text, expected):
    if expected is None:
        with pytest.raises(Unreadable):
            read_expression(text)
        return
    assert value(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 2",
        "1+",
        "(1",
        "1)",
        "x^2^3",
        "__import__('os')",
        "hello",
        r"\int x",
        "1;2",
        "a=b",
        "{1",
        "5 % 3 4 5",
        "\x00",
    ],
)
def test_what_is_outside_the_grammar_is_refused(text):
    with pytest.raises(Unreadable):
        read_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "9^{9^{9^{9}}}",
        "(10^{10^{10}})!",
        "2^{100000}",
        r"\binom{10000000}{5000000}",
        "(10^{9999})^{9999}",
        r"e^{e^{e^{e^{e}}}}",
        "99999999!",
        r"\sin(10^{50})",
        "((2^{1000})^{1000})",
    ],
)
def test_what_is_too_large_is_refused_before_it_is_computed(text):
    node = read_expression(text)
    with pytest.raises(Unreadable):
        evaluate(node, 30)


def test_nesting_and_length_are_limited():
    with pytest.raises(Unreadable, match="nesting"):
        read_expression("(" * 100 + "1" + ")" * 100)
    with pytest.raises(Unreadable, match="characters"):
        read_expression("1+" * 400 + "1")


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("1", r"\sin^2 x+\cos^2 x", True),
        (r"\ln x^2", r"2\ln x", True),  # where both are real
        (r"\frac{x^2-1}{x-1}", "x+1", True),
        ("n!/(n-1)!", "n", True),
        (r"e^{i\pi}", "-1", True),
        (r"\tan^{-1} x", r"\arctan x", True),
        (r"\cos 2x", r"2\cos^2 x-1", True),
        (r"\sin \pi", "0", True),
        ("|x-1|", "|1-x|", True),
        ("1/2x", r"\frac{x}{2}", True),
        (r"\sqrt{x^2}", "x", False),
        ("2^{-99}", "2^{-98}", False),
        (r"\frac{1}{2004!}", r"\frac{1}{2006!}", False),
        ("x^2", "x^2+10^{-30}", False),
        ("k", "K", False),
        (r"\pi", r"\frac{355}{113}", False),
        (r"e^{\pi\sqrt{163}}", "262537412640768744", False),  # differ in the 13th decimal
    ],
)
def test_identities_hold_and_near_misses_do_not(left, right, expected):
    assert equal(read_expression(left), read_expression(right)) is expected


def test_an_expression_defined_nowhere_equals_nothing():
    with pytest.raises(Unreadable):
        equal(read_expression("5"), read_expression(r"\frac{0}{0}"))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("3x+4y-14", "6x+8y-28", 1),
        ("x-5", "5-x", -1),
        ("3x+4y-14", "3x+4y-15", None),
        ("2x+1-y", "2y+1-x", None),
        (r"x-\sqrt{2}", r"\sqrt{2}x-2", 1),
    ],
)
def test_proportional_sides_make_one_equation(left, right, expected):
    assert proportional(read_expression(left), read_expression(right)) == expected


numbers = st.fractions(max_denominator=50).filter(lambda f: abs(f) < 100)


@st.composite
def sums(draw, depth=3):
    """A text and its value, worked out by Python's fractions beside the text."""
    if depth == 0 or draw(st.booleans()):
        number = draw(numbers)
        return rf"\frac{{{number.numerator}}}{{{number.denominator}}}", number
    (left, a), (right, b) = draw(sums(depth=depth - 1)), draw(sums(depth=depth - 1))
    operation = draw(st.sampled_from("+-*"))
    result = {"+": a + b, "-": a - b, "*": a * b}[operation]
    return rf"\left({left}{operation if operation != '*' else chr(92) + 'cdot '}{right}\right)", result


@given(sums())
@settings(max_examples=150, deadline=None)
def test_arithmetic_agrees_with_fractions(pair):
    text, expected = pair
    if len(text) <= 512:
        assert value(text) == expected


@given(st.text(alphabet=r"0123456789xyi+-*/^_(){}[]|!%.,\ " + "abcsinqrtfp", max_size=40))
@settings(max_examples=300, deadline=None)
def test_no_text_does_anything_but_parse_or_be_refused(text):
    try:
        node = read_expression(text)
        equal(node, node)
    except Unreadable:
        pass
