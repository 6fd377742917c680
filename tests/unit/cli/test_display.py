"""What is shown of a run, in a terminal and elsewhere."""

from io import StringIO

from rich.console import Console

from peira.cli.display import Display, duration, print_pairs, print_table, sparkline, step_line
from peira.runs.evaluation import Estimate, EvalRecord

METRICS = {
    "reward/mean": 0.25,
    "advantage/collapsed_fraction": 0.5,
    "rollout/tokens_mean": 12.4,
    "rollout/truncated_fraction": 0.0,
    "verifier/unjudged_fraction": 0.125,
    "policy/grad_norm": 0.1234,
    "policy/updates": 1,
    "time/step_s": 10.0,
}


def console(*, terminal: bool) -> tuple[Console, StringIO]:
    file = StringIO()
    return Console(file=file, force_terminal=terminal, width=200), file


def test_a_step_is_one_line_with_the_time_that_is_left():
    out, file = console(terminal=False)
    with Display(out, steps=20) as display:
        display.on_stage("sample", 3, 16)
        display.on_step(2, METRICS)
    # 18 steps are left, the only one so far took 10 s: 180 s = 3.0 min
    assert file.getvalue() == (
        "step  2/20  reward 0.250  collapsed 50%  unjudged 12%  tokens 12  gradient 0.123  10.0 s  "
        "ETA 3.0 min\n"
    )


def test_the_rest_is_reckoned_by_the_median_of_the_last_steps():
    out, file = console(terminal=False)
    with Display(out, steps=103) as display:
        for step, seconds in ((1, 10.0), (2, 90.0), (3, 10.0)):
            display.on_step(step, {**METRICS, "time/step_s": seconds})
    assert file.getvalue().splitlines()[-1].endswith("ETA 16.7 min")  # 100 steps x 10 s = 1000 s


def test_a_step_without_a_signal_says_that_nothing_moved():
    line = step_line({"reward/mean": 0.0, "policy/updates": 0})
    assert line == "reward 0.000  no signal, no update"


def test_a_terminal_gets_a_bar_with_the_rewards_so_far():
    out, file = console(terminal=True)
    with Display(out, steps=3) as display:
        display.on_stage("sample", 1, 4)
        for step, reward in ((1, 0.0), (2, 0.5), (3, 1.0)):
            display.on_step(step, {**METRICS, "reward/mean": reward})
    text = file.getvalue()
    assert "▁▄█" in text
    assert "3/3" in text
    assert "step 3/3  reward 1.000" in text


def test_a_long_stage_says_how_far_it_is_where_there_is_no_bar(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("peira.cli.display.time.monotonic", lambda: clock[0])
    out, file = console(terminal=False)
    with Display(out, steps=1) as display:
        for seconds, done in ((10.0, 1), (29.0, 2), (31.0, 3), (40.0, 4), (62.0, 5)):
            clock[0] = seconds
            display.on_stage("evaluate", done, 89)
    assert file.getvalue() == "evaluate 3/89\nevaluate 5/89\n"


def test_text_of_a_run_is_not_taken_for_markup():
    out, file = console(terminal=False)
    with Display(out, steps=1) as display:
        display.on_event("resumed from [bold]runs[/bold]: [1, 2]")
    assert file.getvalue() == "resumed from [bold]runs[/bold]: [1, 2]\n"


def test_an_evaluation_shows_its_interval_and_what_was_not_judged():
    out, file = console(terminal=False)
    record = EvalRecord(
        step=4,
        policy_version=4,
        headline="accuracy",
        estimates={"accuracy": Estimate(value=0.5, low=0.3, high=0.7, num_questions=20)},
        num_questions=20,
        num_completions=20,
        num_unjudged=2,
        duration_s=12.0,
    )
    with Display(out, steps=8) as display:
        display.on_eval(record)
    assert file.getvalue() == (
        "held-out accuracy after 4 steps: 0.500 (0.300 to 0.700, 20 questions, 12 s); "
        "2 completions unjudged\n"
    )


def test_a_sparkline_spans_lowest_to_highest():
    assert sparkline([]) == ""
    assert sparkline([0.3, 0.3]) == "▁▁"
    assert sparkline([0.0, 1.0, 0.5]) == "▁█▄"  # 0.5 * 7 = 3.5, rounded down to the fourth of eight


def test_durations_are_in_the_unit_a_person_would_choose():
    assert [duration(s) for s in (0.4, 99, 100, 3600, 7200)] == [
        "0 s",
        "99 s",
        "1.7 min",
        "60.0 min",
        "2.0 h",
    ]


def test_labels_stand_once_and_tables_are_never_cut():
    file = StringIO()
    out = Console(file=file, width=20)
    print_pairs(
        out, [("data", "one"), ("data", "a line that is longer than the console is wide"), ("x", "y")]
    )
    print_table(out, ("", "value"), [("a long name in the first column", "0.5"), ("b", "10.25")])
    assert file.getvalue() == (
        "data        one\n"
        "            a line that is longer than the console is wide\n"
        "x           y\n"
        "                                 value\n"
        "a long name in the first column    0.5\n"
        "b                                10.25\n"
    )
