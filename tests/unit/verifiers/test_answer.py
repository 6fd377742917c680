"""Where the answer stands in a completion."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peira.types.rollout import StopReason
from peira.types.verdict import Attempt, VerdictStatus
from peira.verifiers.answer import (
    answer_tag,
    boxes,
    final_answer,
    last_box,
    plain_digits,
    strip_thinking,
    unread,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("<think>a</think>b", "b"),
        ("a</think>b", "b"),  # the opening tag stood in the prompt
        ("<think>a</think>b<think>c</think>d", "d"),
        ("<THINK>a</THINK>b", "b"),
        ("<think>a", None),
        ("<think>a</think>b<think>c", None),
        ("", ""),
    ],
)
def test_only_what_follows_the_thinking_part_is_left(text, expected):
    assert strip_thinking(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{5}", ["5"]),
        (r"\boxed{5} and \boxed{7}", ["5", "7"]),
        (r"\boxed{\frac{1}{2}}", [r"\frac{1}{2}"]),
        (r"\boxed{\boxed{5}}", ["5"]),
        (r"\boxed{\text{a \boxed{5} b}}", [r"\text{a \boxed{5} b}"]),
        (r"\boxed{\{1,2\}}", [r"\{1,2\}"]),
        (r"\boxed{5", []),
        (r"\boxed{\boxed{5}", ["5"]),
        (r"\boxed {5}", ["5"]),
        (r"\fboxed{5}", ["5"]),
        (r"\boxed{}", [""]),
        (r"} \boxed{5}", ["5"]),
        ("none", []),
    ],
)
def test_boxes_are_found_by_matching_braces(text, expected):
    assert boxes(text) == expected


def test_the_last_box_counts():
    assert last_box(r"\boxed{5}, no: \boxed{7}") == "7"
    assert last_box("no box") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<answer>5</answer>", "5"),
        ("<answer>5</answer><answer> 7 </answer>", "7"),
        ("<ANSWER>5</ANSWER>", "5"),
        ("<answer>5", None),
        ("5</answer>", None),
        ("", None),
    ],
)
def test_the_last_complete_tag_counts(text, expected):
    assert answer_tag(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The answer is 5.", "5"),
        ("The answer is **73**.", "73"),
        ("The final answer is: $\\frac{1}{2}$.", r"\frac{1}{2}"),
        ("Answer: B", "B"),
        ("work\n#### 42", "42"),
        ("The answer is 5. No, the answer is 6.", "6"),
        (r"The answer is 5. \boxed{7}", "7"),
        ("The answer is 5. Hope this helps!", "5"),
        ("The answer is 2.5 metres", "2.5 metres"),
        ("The answer is $18.", "18"),
        ("nothing here", None),
    ],
)
def test_an_announced_answer_is_read_to_the_end_of_its_sentence(text, expected):
    assert final_answer(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("\u0664\u0662", "42"), ("\uff14\uff12", "42"), ("\u22125", "-5"), ("1\u20442", "1/2"), ("abc", "abc")],
)
def test_digits_of_any_script_become_ascii(text, expected):
    assert plain_digits(text) == expected


def test_an_unread_answer_is_unparseable_or_truncated():
    assert unread(Attempt(text=""), "x").status is VerdictStatus.UNPARSEABLE
    for reason in (StopReason.LENGTH, StopReason.ABORT):
        assert unread(Attempt(text="", stop_reason=reason), "x").status is VerdictStatus.TRUNCATED


@given(st.text(alphabet=r"\boxed{}<think>/answr 5", max_size=80))
def test_no_text_breaks_the_readers(text):
    for found in boxes(text):
        assert found in text
    final_answer(text)
    answer_tag(text)
    strip_thinking(text)
