"""What datasets answer one way or the other is an option, and each option has its default."""

import pytest

from peira.errors import VerifierError
from peira.types.rollout import StopReason
from peira.types.task import Task
from peira.types.verdict import Attempt, VerdictStatus
from peira.verifiers.forms import Policy
from peira.verifiers.mathematics import MathVerifier


def verdict(reference, completion, **settings):
    stop = settings.pop("stop_reason", StopReason.END)
    return MathVerifier(**settings).verify(
        Task(id="t", prompt="?", answer=reference), Attempt(text=completion, stop_reason=stop)
    )


@pytest.mark.parametrize(
    ("reference", "answer", "setting", "by_default"),
    [
        ("28", r"28\%", {"percent": "bare"}, 0),
        (r"28\%", "28", {"percent": "bare"}, 0),
        ("12", r"12 \text{ apples}", {"unknown_unit": "accept"}, 0),
        ("0.75", r"\frac{3}{4} \approx 0.8", {"approximate_tail": "ignore"}, 0),
        (r"\log 2", r"\log_{10} 2", {"log_base": "10"}, 0),
        (r"\text{Paris}", r"\text{paris}", {"text_case": "exact"}, 1),
        (r"1 \text{ m}", r"100 \text{ cm}", {"convert_units": False}, 1),
        (r"10 \text{ cm}", "10", {"missing_unit": "reject"}, 1),
        (r"\ln 2", r"\log 2", {"log_base": "10"}, 1),
        ("95", "37+58", {"unevaluated": "reject"}, 1),
        ("120", "5!", {"unevaluated": "reject"}, 1),
        (r"\frac{1}{2}", r"\sin 30^\circ", {"unevaluated": "reject"}, 1),
    ],
)
def test_an_option_turns_the_verdict(reference, answer, setting, by_default):
    completion = rf"\boxed{{{answer}}}"
    assert verdict(reference, completion).score == by_default
    assert verdict(reference, completion, policy=Policy(**setting)).score == 1 - by_default


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("95", "95.0"),
        ("-1/2", r"-\frac{1}{2}"),
        ("0.5", r"50\%"),
        (r"2\sqrt{2}", r"\sqrt{8}"),
        ("x+1", "1+x"),
        (r"\frac{7}{2}", r"3\frac{1}{2}"),
        ("1500", "1.5e3"),
        ("1500", r"1.5\times 10^{3}"),
        (r"3 \text{ hours } 20 \text{ minutes}", r"200 \text{ minutes}"),
    ],
)
def test_numbers_in_any_spelling_are_no_calculations(reference, answer):
    policy = Policy(unevaluated="reject")
    assert verdict(reference, rf"\boxed{{{answer}}}", policy=policy).score == 1.0


@pytest.mark.parametrize(
    ("reference", "answer", "expected"),
    [
        (r"\frac{1}{3}", "0.3333", 1),  # 1/3 = 0.33333... rounds to 0.3333
        (r"\frac{1}{3}", "0.3334", 0),
        (r"\frac{2}{3}", "0.6667", 1),
        (r"\frac{2}{3}", "0.6666", 0),  # cut, not rounded
        (r"\frac{1}{3}", "0.33", 0),  # fewer than four digits
        (r"\sqrt{2}", "1.414", 1),
        (r"\sqrt{2}", "1.415", 0),
        ("0", "0.0001", 0),
    ],
)
def test_a_rounded_decimal_needs_enough_correct_digits(reference, answer, expected):
    policy = Policy(significant_digits=4)
    assert verdict(reference, rf"\boxed{{{answer}}}", policy=policy).score == expected


@pytest.mark.parametrize(
    ("completion", "by_extraction"),
    [
        ("The answer is **73**.", {"boxed": 0, "final": 1, "tag": 0, "whole": 0}),
        ("So 73 it is.\n#### 73", {"boxed": 0, "final": 1, "tag": 0, "whole": 0}),
        ("<answer>73</answer>", {"boxed": 0, "final": 0, "tag": 1, "whole": 0}),
        (r"\boxed{73}", {"boxed": 1, "final": 1, "tag": 0, "whole": 1}),
        ("73", {"boxed": 0, "final": 0, "tag": 0, "whole": 1}),
        (r"<answer>\boxed{73}</answer>", {"boxed": 1, "final": 1, "tag": 1, "whole": 1}),
    ],
)
def test_extraction_decides_where_the_answer_may_stand(completion, by_extraction):
    scores = {how: verdict("73", completion, extract=how).score for how in by_extraction}
    assert scores == by_extraction


def test_too_many_different_boxes_are_no_answer_when_limited():
    sprayed = r"\boxed{1} \boxed{2} \boxed{3}"
    assert verdict("3", sprayed).score == 1.0
    assert verdict("3", sprayed).parts["num_boxes"] == 3.0
    limited = verdict("3", sprayed, max_boxes=2)
    assert (limited.score, limited.status) == (0.0, VerdictStatus.UNPARSEABLE)
    assert verdict("3", r"\boxed{3} again \boxed{3}", max_boxes=1).score == 1.0


def test_a_completion_that_was_cut_off_is_told_from_one_that_gave_no_answer():
    assert verdict("7", "I think").status is VerdictStatus.UNPARSEABLE
    assert verdict("7", "I think", stop_reason=StopReason.LENGTH).status is VerdictStatus.TRUNCATED
    assert verdict("7", r"\boxed{7}", stop_reason=StopReason.LENGTH).score == 1.0


@pytest.mark.parametrize(
    "answer", [None, True, {"a": 1}, "", r"\frac{1}{0}", r"\begin{cases} x=1 \end{cases}"]
)
def test_a_reference_that_cannot_be_read_is_our_fault(answer):
    with pytest.raises(VerifierError, match="answer = "):
        verdict(answer, r"\boxed{7}")


@pytest.mark.parametrize(
    ("answer", "completion"),
    [(7, "7"), (0.5, r"\frac{1}{2}"), ("6 * 7 = 42\n#### 42", "42"), (r"\boxed{9}", "9")],
)
def test_references_come_as_numbers_worked_solutions_or_boxes(answer, completion):
    assert verdict(answer, rf"\boxed{{{completion}}}").score == 1.0
