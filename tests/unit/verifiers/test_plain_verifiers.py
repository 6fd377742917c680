"""Numbers, texts, choices, shapes."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peira.errors import ConfigError, VerifierError
from peira.types.rollout import StopReason
from peira.types.task import Task
from peira.types.verdict import Attempt, VerdictStatus
from peira.verifiers.choice import ChoiceVerifier
from peira.verifiers.exact import ExactVerifier
from peira.verifiers.format import FormatVerifier
from peira.verifiers.number import last_number, read_number, reference_number
from peira.verifiers.numeric import NumericVerifier


def judged(verifier, answer, text, stop_reason=StopReason.END):
    return verifier.verify(
        Task(id="t", prompt="?", answer=answer), Attempt(text=text, stop_reason=stop_reason)
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("95", 95),
        ("-7", -7),
        ("+7", 7),
        ("1,234,567", 1234567),
        ("1,234.5", Fraction(2469, 2)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("3/4", Fraction(3, 4)),
        ("-3/4", Fraction(-3, 4)),
        ("50%", Fraction(1, 2)),
        (r"50\%", Fraction(1, 2)),
        ("$18", 18),
        ("-$18", -18),
        ("$5.50$", Fraction(11, 2)),
        (r"\frac{1}{2}", Fraction(1, 2)),
        (r"-\dfrac{1}{2}", Fraction(-1, 2)),
        ("1.5e3", 1500),
        ("\u22125", -5),
        ("\u0664\u0662", 42),
        ("1{,}000", 1000),
        ("1,00", None),
        ("1/0", None),
        (r"\frac{1}{0}", None),
        ("1e9999", None),
        ("2^10", None),
        ("--5", None),
        ("five", None),
        ("", None),
        ("1 2", None),
        ("9" * 2000, None),
        ("1_000", None),
        ("0x10", None),
        ("nan", None),
        ("inf", None),
    ],
)
def test_a_number_is_read_whole_or_not_at_all(text, expected):
    assert read_number(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("37 + 58 = 95.", "95"),
        ("It is **95**", "95"),
        ("95", "95"),
        ("(95)", "95"),
        ("x=95", "95"),
        ("-95", "-95"),
        ("10-5", ""),
        ("95, then 2^10", ""),
        ("95 and x2", ""),
        ("95km", ""),
        ("95 km", "95"),
        ("costs $18.", "$18"),
        (r"so \frac{1}{2}.", r"\frac{1}{2}"),
        ("1/2", "1/2"),
        ("50%.", "50%"),
        ("none", None),
        ("", None),
        (r"2^{10}", ""),
    ],
)
def test_the_last_number_counts_if_it_stands_alone(text, expected):
    assert last_number(text) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(5, 5), (0.1, Fraction(1, 10)), ("5", 5), ("6*7\n#### 42", 42), (True, None), (None, None), ("x", None)],
)
def test_references_are_numbers_texts_or_worked_solutions(answer, expected):
    assert reference_number(answer) == expected


@given(st.fractions())
def test_every_fraction_is_read_as_itself(fraction):
    if len(str(fraction)) < 500:
        assert read_number(str(fraction)) == fraction


@given(st.text(max_size=200))
def test_reading_numbers_never_raises(text):
    read_number(text)
    last_number(text)


@pytest.mark.parametrize(
    ("extract", "text", "score"),
    [
        ("last", "37 + 58 = 95", 1),
        ("last", "95 or 96", 0),
        ("last", r"\boxed{95} in 3 steps", 1),
        ("boxed", r"\boxed{95}", 1),
        ("boxed", "95", 0),
        ("whole", " 95\n", 1),
        ("whole", "it is 95", 0),
        ("last", "<think>95</think>94", 0),
        ("last", "<think>95", 0),
        ("last", r"\frac{95}{1}", 1),
        ("last", r"\frac{1}{95}", 0),
    ],
)
def test_a_number_is_judged_where_it_may_stand(extract, text, score):
    assert judged(NumericVerifier(extract=extract), "95", text).score == score


def test_a_tolerance_is_relative_to_the_reference():
    # 1% of 200 is 2
    verifier = NumericVerifier(relative_tolerance=0.01)
    assert judged(verifier, "200", "202").score == 1.0
    assert judged(verifier, "200", "202.1").score == 0.0
    assert judged(verifier, "0", "0.0001").score == 0.0


def test_a_reference_that_is_no_number_is_our_fault():
    with pytest.raises(VerifierError, match=r"task 't': answer = 'Paris': expected a number"):
        judged(NumericVerifier(), "Paris", "5")


def test_no_number_is_unparseable_and_a_cut_one_truncated():
    assert judged(NumericVerifier(), "5", "no idea").status is VerdictStatus.UNPARSEABLE
    assert judged(NumericVerifier(), "5", "no idea", StopReason.LENGTH).status is VerdictStatus.TRUNCATED


@pytest.mark.parametrize(
    ("settings", "text", "score"),
    [
        ({}, " Paris\n", 1),
        ({}, "paris", 0),
        ({"ignore_case": True}, "PARIS", 1),
        ({"strip": False}, " Paris", 0),
        ({}, "Paris, France", 0),
        ({}, "<think>Rome</think>Paris", 1),
        ({}, "<think>Paris", 0),
        ({}, "", 0),
    ],
)
def test_a_text_is_compared_character_by_character(settings, text, score):
    assert judged(ExactVerifier(**settings), "Paris", text).score == score


@pytest.mark.parametrize("answer", [None, True, ["a"], "  "])
def test_a_reference_that_is_no_text_is_our_fault(answer):
    with pytest.raises(VerifierError, match="expected a text"):
        judged(ExactVerifier(), answer, "x")


def test_a_number_as_reference_is_compared_as_text():
    assert judged(ExactVerifier(), 5, "5").score == 1.0


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("B", 1),
        ("b", 1),
        ("(B)", 1),
        ("B.", 1),
        ("**B**", 1),
        (r"\boxed{B}", 1),
        (r"\boxed{\text{B}}", 1),
        ("The answer is (B).", 1),
        ("Answer: B) because the sky is blue", 1),
        ("<answer>B</answer>", 1),
        ("<think>A</think>B", 1),
        ("A", 0),
        ("A or B", 0),
        ("B or A", 0),
        ("A, B, C, D", 0),
        ("Because", 0),
        ("E", 0),
        ("", 0),
        ("The answer is B. No, the answer is A.", 0),
    ],
)
def test_one_option_must_be_chosen(text, score):
    assert judged(ChoiceVerifier(), "B", text).score == score


def test_options_can_be_digits():
    assert judged(ChoiceVerifier(choices="1234"), "3", "The answer is 3").score == 1.0


def test_a_reference_outside_the_options_is_our_fault():
    with pytest.raises(VerifierError, match="expected one of A, B, C, D"):
        judged(ChoiceVerifier(), "E", "A")


def test_a_shape_is_the_whole_completion():
    verifier = FormatVerifier(pattern=r"<think>.*</think>\s*\d+")
    assert judged(verifier, None, "<think>a\nb</think> 5").score == 1.0
    assert judged(verifier, None, "<think>a</think> 5 and more").score == 0.0


def test_a_pattern_that_is_none_is_refused_early():
    with pytest.raises(ConfigError, match=r"pattern = '\(': expected a regular expression"):
        FormatVerifier(pattern="(")
