from datetime import date
from decimal import Decimal

import pytest

from peira.data.prompt import PromptStyle
from peira.data.reading import Reading
from peira.data.rows import Row
from peira.errors import ConfigError, DataError
from peira.types.task import Message

USER = {"role": "user", "content": "1 + 1 = ?"}
ASKED = (Message(role="user", content="1 + 1 = ?"),)


def read(values, *, columns=None, answer_pattern=None, style=None):
    row = Row(place="d.jsonl: line 1", values=values)
    reading = Reading.choose([row], columns, answer_pattern)
    return reading, reading.task(row, style or PromptStyle(), source="d")


@pytest.mark.parametrize(
    ("values", "answer", "words"),
    [
        ({"prompt": "1 + 1 = ?", "answer": "2"}, "2", "prompt from `prompt`, answer from `answer`"),
        ({"question": "1 + 1 = ?", "ground_truth": "2"}, "2", "answer from `ground_truth`"),
        ({"problem": "1 + 1 = ?", "solution": "2"}, "2", "prompt from `problem`, answer from `solution`"),
        ({"prompt": [USER], "solution": "2"}, "2", "TRL layout"),
        ({"input": "1 + 1 = ?", "label": 2}, 2, "OpenRLHF layout: prompt from `input`, answer from `label`"),
        ({"context_messages": [USER], "label": "2"}, "2", "OpenRLHF layout"),
        (
            {"prompt": [USER], "reward_model": {"style": "rule", "ground_truth": "2"}, "data_source": "sums"},
            "2",
            "verl layout: prompt from `prompt`, answer from `reward_model.ground_truth`, source from",
        ),
        ({"prompt": [USER], "reward_spec": {"ground_truth": "2"}}, "2", "SkyRL layout"),
        ({"prompt": "1 + 1 = ?", "extra_env_info": {"ground_truth": "2"}}, "2", "NeMo-RL layout"),
        ({"messages": [USER], "ground_truth": "2", "dataset": "sums"}, "2", "open-instruct layout"),
        ({"question": "1 + 1 = ?", "answer": "2", "info": {"k": 1}}, "2", "verifiers layout"),
        ({"prompt": "1 + 1 = ?"}, None, "prompt from `prompt`, no answer"),
    ],
)
def test_every_layout_of_the_field_is_read_and_said_in_words(values, answer, words):
    reading, task = read(values)
    assert task.prompt == ASKED
    assert task.answer == answer
    assert words in reading.describe()


def test_columns_of_other_layouts_reach_the_verifier_by_name():
    _, task = read({"prompt": "x", "answer": 1, "level": 3, "extra_info": {"index": 7, "gone": None}})
    assert task.info == {"level": 3, "extra_info": {"index": 7, "gone": None}}


def test_the_nested_answer_keeps_its_siblings_in_info():
    _, task = read({"prompt": "x", "reward_model": {"style": "rule", "ground_truth": "2"}})
    assert task.info == {"reward_model": {"style": "rule", "ground_truth": "2"}}


def test_verl_and_open_instruct_name_the_source_of_each_row():
    assert (
        read({"prompt": [USER], "reward_model": {"ground_truth": "2"}, "data_source": "s"})[1].source == "s"
    )
    assert read({"messages": [USER], "ground_truth": "2", "dataset": "s"})[1].source == "s"
    assert read({"prompt": "x", "answer": "2", "dataset": "s"})[1].source == "d"


def test_verifier_id_and_info_are_optional_and_info_may_be_json_text():
    _, task = read({"prompt": "x", "answer": "2", "verifier": "exact", "id": 7, "info": '{"k": [1]}'})
    assert (task.verifier, task.id, task.info) == ("exact", "7", {"k": [1]})
    _, task = read({"prompt": "x", "answer": "2"})
    assert (task.verifier, task.id, task.info) == (None, "", {})


def test_the_column_not_taken_is_mentioned_and_kept():
    reading, task = read({"problem": "x", "solution": "long way", "answer": "2"})
    assert task.answer == "2"
    assert task.info == {"solution": "long way"}
    assert "`solution` could be the answer too and was not taken" in reading.describe()


def test_an_explicit_column_goes_before_any_guess_and_may_be_nested():
    values = {"prompt": "x", "answer": "2", "extra": {"q": "1 + 1 = ?", "truth": 3}, "how": "numeric"}
    reading, task = read(
        values, columns={"prompt": "extra.q", "answer": "extra.truth", "verifier": "how", "source": "answer"}
    )
    assert (task.prompt, task.answer, task.verifier, task.source) == (ASKED, 3, "numeric", "2")
    assert "prompt from `extra.q`" in reading.describe()


def test_a_column_whose_own_name_has_a_dot_is_found():
    assert read({"prompt": "x", "reward_model.ground_truth": "2"})[1].answer == "2"


def test_a_missing_explicit_column_is_a_setting_error_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"columns.answer = 'ansver': .*\(nearest: 'answer'\)"):
        read({"prompt": "x", "answer": "2"}, columns={"answer": "ansver"})


def test_without_a_prompt_column_the_columns_and_the_way_out_are_named():
    with pytest.raises(DataError, match=r"line 1: columns = text, target: .*columns: \{prompt: COLUMN\}"):
        read({"text": "x", "target": "2"})


def test_the_first_null_does_not_decide():
    rows = [
        Row(place="d: line 1", values={"prompt": "x", "reward_model": None, "info": None}),
        Row(
            place="d: line 2", values={"prompt": "y", "reward_model": {"ground_truth": "2"}, "info": {"k": 1}}
        ),
    ]
    reading = Reading.choose(rows)
    tasks = [reading.task(row, PromptStyle(), source="d") for row in rows]
    assert [task.answer for task in tasks] == [None, "2"]
    assert [dict(task.info)["k"] if "k" in task.info else None for task in tasks] == [None, 1]


def test_a_worked_solution_ending_in_four_hashes_gives_what_stands_behind_them():
    worked = "She has 3 + 4 = 7.\n#### 7"
    reading, task = read({"question": "x", "answer": worked})
    assert task.answer == "7"
    assert task.info == {"answer": worked}
    assert "the text after its last ####" in reading.describe()


def test_a_row_that_does_not_follow_the_answer_pattern_is_named():
    row = Row(place="d: line 9", values={"question": "x", "answer": "no mark"})
    reading = Reading.choose([Row(place="d: line 1", values={"question": "x", "answer": "so\n#### 7"})])
    with pytest.raises(DataError, match=r"line 9, column 'answer' = 'no mark': expected a match"):
        reading.task(row, PromptStyle(), source="d")


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"so $\boxed{3}$, no, $\boxed{ \frac{1}{2} }$.", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed 7", "7"),
        (r"\fbox{x^{2^{3}}} and \boxed{unfinished", "x^{2^{3}}"),
    ],
)
def test_the_last_box_of_a_worked_solution_can_be_the_answer(solution, answer):
    reading, task = read({"problem": "x", "solution": solution}, answer_pattern="boxed")
    assert task.answer == answer
    assert task.info == {"solution": solution}
    assert r"its last \boxed{}" in reading.describe()
    with pytest.raises(DataError, match="expected a match of 'boxed'"):
        read({"problem": "x", "solution": "no box"}, answer_pattern="boxed")


def test_the_last_match_of_an_answer_pattern_is_the_answer():
    assert read({"prompt": "x", "answer": "1 then 22"}, answer_pattern=r"\d+")[1].answer == "22"
    assert read({"prompt": "x", "answer": "<a>1</a>"}, answer_pattern=r"<a>(.*?)</a>")[1].answer == "1"
    with pytest.raises(ConfigError, match=r"answer_pattern = '\(': expected a regular expression"):
        read({"prompt": "x", "answer": "1"}, answer_pattern="(")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"prompt": None}, "column 'prompt' = null: expected a value"),
        ({"prompt": ""}, "column 'prompt' = '': expected a text with something in it"),
        ({"prompt": " \n"}, "expected a text with something in it"),
        ({"prompt": 5}, "column 'prompt' = 5: expected a text, or a list of messages"),
        ({"prompt": []}, "column 'prompt' = []: expected a text, or a list of messages"),
        ({"prompt": ["hello"]}, "message 0 = 'hello': expected an object with role and content"),
        ({"prompt": [{"role": "user"}]}, "message 0, content = None: expected a text"),
        (
            {"prompt": [{"role": "user", "content": ""}]},
            "message 0 = '': expected a text with something in it",
        ),
        ({"prompt": [{"from": "human", "value": "x"}]}, "expected an object with role and content"),
        (
            {"messages": [USER, {"role": "assistant", "content": "2"}]},
            "the role 'assistant': expected 'user'",
        ),
        ({"messages": [{"role": "system", "content": "2"}]}, "the role 'system': expected 'user'"),
        (
            {"prompt": [{"role": "user", "content": [{"type": "image", "url": "u"}]}]},
            "part 0: type = 'image': expected text",
        ),
        ({"prompt": [{"role": "assistant", "content": "", "tool_calls": [1]}, USER]}, "tool_calls = [1]"),
        ({"prompt": "x\ud800"}, "half of a surrogate pair at character 2"),
        ({"prompt": "x", "answer": "\ud800"}, "column 'answer': half of a surrogate pair"),
        ({"prompt": "x", "id": 1.5}, "column 'id' = 1.5: expected a text or a whole number"),
        ({"prompt": "x", "id": True}, "column 'id' = True: expected a text or a whole number"),
        ({"prompt": "x", "info": "{broken"}, "column 'info' = '{broken': expected an object"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_with_row_and_column(values, words):
    with pytest.raises(DataError) as caught:
        read(values)
    assert str(caught.value).startswith("d.jsonl: line 1")
    assert words in str(caught.value)


def test_a_later_row_without_the_prompt_column_is_named_with_the_nearest_of_its_own():
    reading = Reading.choose([Row(place="d: line 1", values={"prompt": "x"})])
    with pytest.raises(DataError, match=r"d: line 4: no column 'prompt': .*\(nearest: 'promt'\)"):
        reading.task(Row(place="d: line 4", values={"promt": "x"}), PromptStyle(), source="d")


def test_a_verifier_column_of_another_type_in_a_later_row_is_named():
    reading = Reading.choose([Row(place="d: line 1", values={"prompt": "x", "verifier": "exact"})])
    with pytest.raises(DataError, match=r"d: line 4, column 'verifier' = 3: expected a name"):
        reading.task(Row(place="d: line 4", values={"prompt": "x", "verifier": 3}), PromptStyle(), source="d")


def test_text_parts_are_joined_and_unknown_keys_of_a_message_are_left_out():
    parts = [{"type": "text", "text": "1 + 1"}, {"type": "text", "text": " = ?", "image": None}]
    assert read({"prompt": [{"role": "user", "content": parts, "weight": 1}]})[1].prompt == ASKED


def test_a_missing_number_of_a_table_is_a_missing_answer():
    assert read({"prompt": "x", "answer": float("nan")})[1].answer is None


def test_values_that_json_does_not_know_become_plain():
    values = {"prompt": "x", "on": date(2026, 1, 2), "price": Decimal("1.10"), "raw": b"\x00", "pair": (1, 2)}
    assert read(values)[1].info == {"on": "2026-01-02", "price": "1.10", "raw": "AA==", "pair": [1, 2]}
