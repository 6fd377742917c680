"""Procedural traces: what is written down follows from the habit, and errors are what they claim to be."""

import re
from random import Random

import pytest

from peira.errors import ModelError
from peira.models.traces import (
    HABITS,
    Problem,
    TraceSpec,
    draw_problem,
    draw_trace,
    draw_traces,
    heldout_problems,
)

SUM = Problem(kind="addition", prompt="37+58=", answer="95")
ALL = [(kind, habit) for kind, habits in HABITS.items() for habit in habits]


def spec(kind: str, habit: str, **settings: object) -> TraceSpec:
    return TraceSpec(kind=kind, max_length=4, habits={habit: 1.0}, **settings)  # type: ignore[arg-type]


def wrong_sums(text: str) -> list[str]:
    """Every `a+b=c` or `a-b=c` in a text that does not hold, by an evaluation of its own."""
    found = re.findall(r"(\d+(?:[+-]\d+)+)=(\d+)", text)
    return [
        f"{left}={right}" for left, right in found if sum(map(int, re.findall(r"-?\d+", left))) != int(right)
    ]


@pytest.mark.parametrize(
    ("habit", "text"),
    [
        ("column", "7+8=15 3+5+1=9 so 95"),  # 7+8 = 15: write 5, carry 1; 3+5+1 = 9
        ("split", "30+50=80 7+8=15 80+15=95 so 95"),
        ("round", "37+60=97 97-2=95 so 95"),  # 58 is rounded up by 2
        ("direct", "so 95"),
    ],
)
def test_a_sum_is_written_out_as_its_habit_says(habit: str, text: str) -> None:
    assert draw_trace(spec("addition", habit), Random(0), problem=SUM).text == text


def test_a_last_carry_becomes_a_digit_of_its_own() -> None:
    problem = Problem(kind="addition", prompt="87+45=", answer="132")
    # 7+5 = 12: 2, carry 1; 8+4+1 = 13: 3, carry 1 -> 132
    assert draw_trace(spec("addition", "column"), Random(0), problem=problem).text == "7+5=12 8+4+1=13 so 132"


@pytest.mark.parametrize(
    ("kind", "habit", "prompt", "answer", "text"),
    [
        ("copy", "spell", "copy bead", "bead", "b e a d so bead"),
        ("reverse", "spell", "reverse bead", "daeb", "d a e b so daeb"),
        ("reverse", "peel", "reverse bead", "daeb", "bead>d bea>a be>e b>b so daeb"),
        ("sort", "select", "sort bead", "abde", "bead>a bed>b ed>d e>e so abde"),
        ("sort", "direct", "sort bead", "abde", "so abde"),
    ],
)
def test_strings_are_written_out_as_their_habit_says(
    kind: str, habit: str, prompt: str, answer: str, text: str
) -> None:
    problem = Problem(kind=kind, prompt=prompt, answer=answer)
    assert draw_trace(spec(kind, habit), Random(0), problem=problem).text == text


def test_a_forgotten_carry_gives_the_answer_without_it() -> None:
    forgetful = spec("addition", "column", wrong_share=1.0, errors={"carry": 1.0})
    trace = draw_trace(forgetful, Random(0), problem=SUM)
    # 7+8 = 15: write 5, forget the 1; 3+5 = 8
    assert (trace.text, trace.error, trace.answer) == ("7+8=15 3+5=8 so 85", "carry", "85")


def test_without_a_carry_to_forget_a_step_slips_instead() -> None:
    problem = Problem(kind="addition", prompt="12+34=", answer="46")
    forgetful = spec("addition", "column", wrong_share=1.0, errors={"carry": 1.0})
    trace = draw_trace(forgetful, Random(0), problem=problem)
    assert trace.error == "slip"
    assert trace.answer != "46"


@pytest.mark.parametrize(("kind", "habit"), ALL)
def test_sound_traces_are_right_in_every_step_and_in_the_answer(kind: str, habit: str) -> None:
    random = Random(1)
    for _ in range(200):
        trace = draw_trace(spec(kind, habit), random)
        left, _, text = trace.problem.prompt.partition(" ")
        expected = {
            "addition": lambda p=left: str(sum(map(int, p.rstrip("=").split("+")))),
            "copy": lambda t=text: t,
            "reverse": lambda t=text: "".join(reversed(t)),
            "sort": lambda t=text: "".join(sorted(t)),
        }[kind]()
        assert trace.error == ""
        assert trace.answer == trace.problem.answer == expected
        assert trace.text.endswith(f"so {expected}")
        assert wrong_sums(trace.text) == []


@pytest.mark.parametrize(("kind", "habit"), ALL)
@pytest.mark.parametrize("error", ["slip", "final"])
def test_wrong_traces_end_in_a_wrong_answer(kind: str, habit: str, error: str) -> None:
    random = Random(2)
    for _ in range(100):
        trace = draw_trace(spec(kind, habit, wrong_share=1.0, errors={error: 1.0}), random)
        assert trace.error == error
        assert trace.answer != trace.problem.answer
        assert trace.text.endswith(f"so {trace.answer}")


def test_a_miscopied_answer_stands_behind_right_steps_and_a_slip_behind_a_wrong_one() -> None:
    random = Random(3)
    for _ in range(100):
        final = draw_trace(spec("addition", "split", wrong_share=1.0, errors={"final": 1.0}), random)
        slip = draw_trace(spec("addition", "split", wrong_share=1.0, errors={"slip": 1.0}), random)
        assert wrong_sums(final.text) == []
        assert len(wrong_sums(slip.text)) == 1


def test_unsound_traces_are_right_past_a_wrong_step() -> None:
    random = Random(4)
    for _ in range(100):
        trace = draw_trace(spec("addition", "split", unsound_share=1.0), random)
        assert trace.error == "unsound"
        assert trace.answer == trace.problem.answer
        assert wrong_sums(trace.text)


def test_noise_changes_one_character_before_the_answer() -> None:
    random = Random(5)
    for _ in range(100):
        noisy = draw_trace(spec("sort", "select", noise_share=1.0), random)
        sound = draw_trace(spec("sort", "select"), random, problem=noisy.problem)
        differing = [i for i, (a, b) in enumerate(zip(noisy.text, sound.text, strict=True)) if a != b]
        assert len(differing) == 1
        assert differing[0] < noisy.text.index(" so ")


def test_shares_come_out_as_they_were_asked_for() -> None:
    mixed = TraceSpec(
        kind="addition",
        habits={"column": 3.0, "direct": 1.0},
        wrong_share=0.5,
        errors={"slip": 1.0, "final": 1.0},
        noise_share=0.2,
    )
    traces = [draw_trace(mixed, Random(seed)) for seed in range(4000)]
    wrong = sum(trace.answer != trace.problem.answer for trace in traces) / 4000
    column = sum(trace.habit == "column" for trace in traces) / 4000
    slips = sum(trace.error == "slip" for trace in traces) / 4000
    # standard error of a share near one half over 4000 draws: 0.008; five of them
    assert wrong == pytest.approx(0.5, abs=0.04)
    assert column == pytest.approx(0.75, abs=0.04)
    assert slips == pytest.approx(0.25, abs=0.04)


def test_the_same_seed_gives_the_same_traces() -> None:
    mixture = (spec("addition", "column", wrong_share=0.5), spec("sort", "select"))
    assert draw_traces(mixture, Random(7), 50) == draw_traces(mixture, Random(7), 50)
    assert draw_traces(mixture, Random(7), 50) != draw_traces(mixture, Random(8), 50)


def test_held_out_problems_are_never_shown_and_make_up_the_asked_share() -> None:
    sums = TraceSpec(kind="addition", habits={"direct": 1.0})
    shown = {trace.problem.prompt for trace in draw_traces((sums,), Random(0), 3000, heldout_fraction=0.2)}
    held = {p.prompt for p in heldout_problems(sums, Random(1), 300, heldout_fraction=0.2)}
    assert len(held) == 300
    assert not shown & held
    drawn = {draw_problem(sums, Random(seed)).prompt: seed for seed in range(5000)}
    share = sum(Problem(kind="addition", prompt=p, answer="").is_heldout(0.2) for p in drawn) / len(drawn)
    assert share == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kind": "division"}, "kind = 'division'"),
        ({"kind": "copy", "habits": {"column": 1.0}}, "habits = ['column']"),
        ({"kind": "copy", "habits": {"spell": 0.0}}, "one of them above 0"),
        ({"kind": "copy", "errors": {"crash": 1.0}}, "errors = ['crash']"),
        ({"kind": "copy", "min_length": 3, "max_length": 2}, "min_length = 3"),
        ({"kind": "addition", "max_length": 60}, "max_length = 60"),
        ({"kind": "copy", "wrong_share": 0.7, "noise_share": 0.7}, "sum to at most 1"),
        ({"kind": "copy", "final": "done"}, "final = 'done'"),
    ],
)
def test_a_component_that_makes_no_sense_is_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ModelError) as refused:
        TraceSpec(**settings)  # type: ignore[arg-type]
    assert said in str(refused.value)
