"""What was sampled comes back as it was."""

import json
import math
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peira.errors import RunError
from peira.runs.jsonl import read_lines, write_whole
from peira.runs.ledger import DropReason
from peira.runs.rollout_file import float32, group_from_json, group_to_json
from peira.types.rollout import Completion, StopReason, Turn
from peira.types.verdict import Verdict, VerdictStatus
from tests.unit.runs.records import scored_group


def test_a_group_survives_the_file(tmp_path: Path) -> None:
    group = scored_group([1.0, 0.0, None])
    unjudged = replace(
        group.rollouts[2], verdicts={"math": Verdict.broken(VerdictStatus.TIMEOUT, "killed after 10 s")}
    )
    rich = replace(
        group.rollouts[0],
        shaping={"overlong": -0.25},
        reward=0.75,
        verdicts={
            "math": Verdict(
                score=1.0, parts={"a": 0.5}, step_scores=(0.1, 0.9), flags=("special_case",), detail="ok"
            )
        },
    )
    group = replace(group, rollouts=(rich, group.rollouts[1], unjudged))
    fates = [None, None, DropReason.UNJUDGED]
    path = tmp_path / "step-000001.jsonl"
    write_whole(path, [group_to_json(1, 0, group, [0.5, -0.5, None], fates)])
    (line,) = read_lines(path)
    back = group_from_json(line)
    assert back.step == 1
    assert back.advantages == (0.5, -0.5, None)
    assert back.fates == (None, None, DropReason.UNJUDGED)
    assert back.group.task == group.task
    for was, now in zip(group.rollouts, back.group.rollouts, strict=True):
        assert now.verdicts == was.verdicts
        assert (now.reward, now.outcome, now.excluded) == (was.reward, was.outcome, was.excluded)
        assert now.shaping == was.shaping
        assert now.rollout.token_ids == was.rollout.token_ids
        assert now.rollout.sampling_logprobs == was.rollout.sampling_logprobs
        assert now.rollout.text == was.rollout.text


def test_several_turns_keep_their_own_prompts_and_the_mask_follows() -> None:
    group = scored_group([1.0])
    member = group.rollouts[0]
    second = Turn(
        prompt_ids=(77, 78, 79),
        completion=Completion(
            request_id="x",
            index=0,
            token_ids=(5,),
            logprobs=(-1.25,),
            stop_reason=StopReason.LENGTH,
            policy_version=4,
        ),
        text="again",
    )
    turns = (*member.rollout.turns, second)
    group = replace(group, rollouts=(replace(member, rollout=replace(member.rollout, turns=turns)),))
    record = group_to_json(1, 0, group, [None], [None])
    assert record["prompt_ids"] == [1, 2]
    assert ["prompt_ids" in turn for turn in record["rollouts"][0]["turns"]] == [False, True]
    back = group_from_json(json.loads(json.dumps(record))).group.rollouts[0].rollout
    # prompt 1 2 | completion 10 11 12 | reply 77 78 79 | completion 5
    assert back.token_ids == (1, 2, 10, 11, 12, 77, 78, 79, 5)
    assert back.mask == (False, False, True, True, True, False, False, False, True)
    assert back.stop_reason is StopReason.LENGTH
    assert [turn.completion.policy_version for turn in back.turns] == [3, 4]


def test_a_second_turn_whose_prompt_is_empty_does_not_inherit_the_first() -> None:
    group = scored_group([1.0])
    member = group.rollouts[0]
    turns = (member.rollout.turns[0], replace(member.rollout.turns[0], prompt_ids=()))
    group = replace(group, rollouts=(replace(member, rollout=replace(member.rollout, turns=turns)),))
    back = group_from_json(group_to_json(1, 0, group, [None], [None]))
    assert [turn.prompt_ids for turn in back.group.rollouts[0].rollout.turns] == [(1, 2), ()]


def test_numbers_that_are_not_finite_come_back(tmp_path: Path) -> None:
    path = tmp_path / "step-000001.jsonl"
    write_whole(path, [group_to_json(1, 0, scored_group([1.0, 0.0]), [math.nan, math.inf], [None, None])])
    json.loads(path.read_text(), parse_constant=pytest.fail)  # strict JSON: no bare NaN
    (line,) = read_lines(path)
    first, second = group_from_json(line).advantages
    assert first is not None
    assert math.isnan(first)
    assert second == math.inf


def test_a_line_of_another_shape_is_refused() -> None:
    with pytest.raises(RunError, match="expected the shape"):
        group_from_json({"task": {"id": "x"}, "rollouts": [{}]})


def to_float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_float32_log_probs_lose_nothing(values: list[float]) -> None:
    assert [to_float32(value) for value in json.loads(json.dumps(float32(values)))] == values


def test_the_decimal_form_is_the_shortest_that_means_the_number() -> None:
    # 0.1 in float32 is 0.100000001490116...; "0.1" already rounds to it
    assert json.dumps(float32([to_float32(0.1)])) == "[0.1]"
