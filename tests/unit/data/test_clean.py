import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peira.data.clean import (
    check_answers,
    split_held_out,
    with_unique_ids,
    within_length,
    without_duplicates,
    without_overlap,
)
from peira.data.fingerprint import content_hash
from peira.data.source import TaskTable
from peira.errors import DataError
from peira.types.task import Message, Task


def table(*rows, name="d"):
    """Rows are (prompt, answer) pairs; ids are 0, 1, ..."""
    return TaskTable(
        name=name,
        reading="",
        tasks=tuple(Task(id=str(i), prompt=prompt, answer=answer) for i, (prompt, answer) in enumerate(rows)),
        places=tuple(f"{name}: line {i + 1}" for i in range(len(rows))),
        keys=tuple(content_hash(prompt) for prompt, _ in rows),
    )


def prompts(tables):
    return [[task.prompt for task in table.tasks] for table in tables]


def many(count):
    return table(*((f"p{i}", i) for i in range(count)))


def test_repeated_rows_are_left_out_within_and_across_tables():
    tables, found = without_duplicates(
        [table(("a", 1), ("b", 2), ("a", 1)), table(("b", 2), name="e")], "drop"
    )
    assert prompts(tables) == [["a", "b"], []]
    assert found.repeats == (("d: line 3", "d: line 1"), ("e: line 1", "d: line 2"))


def test_an_equal_prompt_with_another_answer_is_a_conflict_and_stays():
    tables, found = without_duplicates([table(("a", 1), ("a", 2))], "drop")
    assert prompts(tables) == [["a", "a"]]
    assert found.conflicts == (("d: line 2", "d: line 1"),)
    assert found.repeats == ()


def test_one_and_true_are_different_answers():
    assert without_duplicates([table(("a", 1), ("a", True), ("a", "1"))], "drop")[1].repeats == ()


def test_the_rule_keep_keeps_and_the_rule_error_names_both_places():
    rows = table(("a", 1), ("a", 1))
    assert prompts(without_duplicates([rows], "keep")[0]) == [["a", "a"]]
    with pytest.raises(DataError, match="d: line 2 has the prompt and the answer of d: line 1"):
        without_duplicates([rows], "error")


def test_training_rows_with_a_held_out_prompt_are_left_out_whatever_their_answer():
    train, held_out = [table(("a", 1), ("b", 2))], [table(("a", 7), name="e")]
    tables, found = without_overlap(train, held_out, "drop")
    assert prompts(tables) == [["b"]]
    assert found.repeats == (("d: line 1", "e: line 1"),)
    assert prompts(without_overlap(train, held_out, "keep")[0]) == [["a", "b"]]
    with pytest.raises(DataError, match="d: line 1 has the held-out prompt of e: line 1"):
        without_overlap(train, held_out, "error")


def test_about_the_asked_share_is_held_out_and_every_row_is_on_one_side():
    # binomial with n = 2000, p = 0.1: mean 200, standard deviation 13.4; five of them are 67
    train, held_out = split_held_out([many(2000)], 0.1)
    assert abs(len(held_out[0].tasks) - 200) < 67
    assert len(train[0].tasks) + len(held_out[0].tasks) == 2000
    assert not set(train[0].keys) & set(held_out[0].keys)


@given(seed=st.randoms(use_true_random=False), kept=st.integers(50, 200))
@settings(max_examples=20, deadline=None)
def test_a_task_stays_on_its_side_when_rows_move_come_or_go(seed, kept):
    side = set(split_held_out([many(200)], 0.2)[1][0].keys)
    rows = [(f"p{i}", i) for i in range(200)]
    seed.shuffle(rows)
    some = table(*rows[:kept], *((f"new{i}", i) for i in range(20)))
    again = {key for t in split_held_out([some], 0.2)[1] for key in t.keys}
    assert {key for key in some.keys if key in side} == {key for key in again if key in set(many(200).keys)}


def test_rows_with_equal_prompts_are_never_parted():
    rows = [(f"p{i}", answer) for i in range(100) for answer in (1, 2)]
    train, held_out = split_held_out([table(*rows)], 0.3)
    assert not set(train[0].keys) & set(held_out[0].keys)
    assert len(held_out[0].tasks) % 2 == 0


@pytest.mark.parametrize("fraction", [1e-9, 0.5, 1 - 1e-9])
def test_two_prompts_are_one_to_train_on_and_one_held_out(fraction):
    for names in (("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")):
        train, held_out = split_held_out([table(*((name, 1) for name in names))], fraction)
        assert [len(t.tasks) for t in (*train, *held_out)] == [1, 1]


def test_one_prompt_is_trained_on_and_no_fraction_holds_nothing_out():
    for fraction in (0.0, 0.5, 0.999):
        train, held_out = split_held_out([table(("a", 1))], fraction)
        assert prompts(train) == [["a"]]
        assert held_out == []
    assert split_held_out([many(5)], 0.0) == ([many(5)], [])


def test_ids_that_occur_twice_are_told_apart_by_their_content():
    tables = with_unique_ids([table(("a", 1), ("b", 2)), table(("c", 1), name="e")])
    # id "0" is that of a and of c; "1" is unique and stays
    assert [task.id for t in tables for task in t.tasks] == [
        f"0-{content_hash('a')[:8]}",
        "1",
        f"0-{content_hash('c')[:8]}",
    ]


def test_kept_duplicates_are_numbered():
    twice = table(("a", 1))
    tables = with_unique_ids([twice, twice, twice])
    base = f"0-{content_hash('a')[:8]}"
    assert [task.id for t in tables for task in t.tasks] == [base, f"{base}-2", f"{base}-3"]


def test_missing_answers_are_named_for_verifiers_that_need_one():
    some = [
        Task(id="a", prompt="x"),
        Task(id="b", prompt=(Message(role="user", content="y" * 50),), answer=""),
        Task(id="c", prompt="z", answer=0),
        Task(id="d", prompt="z", answer=False),
        Task(id="e", prompt="z", verifier="format"),
    ]
    with pytest.raises(DataError, match=r"in 2 tasks: mine: line 3 \('x'\), b \('y{40}\.\.\.'\)"):
        check_answers(some, lambda task: task.verifier is None, {"a": "mine: line 3"})
    check_answers(some, lambda task: False)


def test_long_prompts_are_left_out_or_refused_with_the_worst_first():
    some = [Task(id=name, prompt="x" * n) for name, n in (("a", 3), ("b", 9), ("c", 5), ("d", 7))]

    def count(task):
        return len(task.prompt)

    kept, report = within_length(some, count, max_tokens=5, long_prompts="drop")
    assert [task.id for task in kept] == ["a", "c"]
    assert report.dropped == (("b", 9), ("d", 7))
    assert (report.num_tasks, report.longest) == (4, 5)
    with pytest.raises(DataError, match=r"= 5: 2 of 4 prompts are longer; .*: 'b' 9, 'd' 7;"):
        within_length(some, count, max_tokens=5, long_prompts="error")
    with pytest.raises(DataError, match="4 of 4 prompts are longer"):
        within_length(some, count, max_tokens=2, long_prompts="drop")
    assert within_length([], count, max_tokens=2, long_prompts="error")[0] == ()
