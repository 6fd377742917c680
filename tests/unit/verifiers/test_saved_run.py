"""A saved run is judged again offline, and its rejections are shown to a second opinion."""

import json

import pytest

from peira.runs.writer import RunWriter
from peira.types.rollout import Completion, Rollout, StopReason, Turn
from peira.types.scored import ScoredGroup, ScoredRollout
from peira.types.task import Message, Task
from peira.types.verdict import Verdict
from tests.unit.verifiers.test_verify_command import verify


def scored(task, index, text, score, stop_reason=StopReason.END):
    completion = Completion(
        request_id=task.id,
        index=index,
        token_ids=(1, 2),
        logprobs=(-0.5, -0.25),
        stop_reason=stop_reason,
        policy_version=0,
    )
    rollout = Rollout(
        id=f"1/{task.id}/{index}",
        task=task,
        turns=(Turn(prompt_ids=(3,), completion=completion, text=text),),
    )
    verdict = Verdict(score=score, detail="as recorded")
    return ScoredRollout(rollout=rollout, verdicts={"numeric": verdict}, outcome=score, reward=score)


@pytest.fixture
def run(tmp_path):
    """One step of one group: two right answers of which one was rejected for its form, and two wrong ones."""
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps({"prompt": "What is one half?", "answer": "0.5", "id": "half"}) + "\n")
    config = (
        f"name: saved\nmodel: {{name: tiny}}\ndata: {{path: {data}, held_out_fraction: 0}}\n"
        "evaluation: {before: false, after: false}\n"
        "verifiers:\n  - {kind: numeric}\n"
    )
    task = Task(
        id="half", prompt=(Message(role="user", content="What is one half?"),), answer="0.5", source="data"
    )
    rollouts = (
        scored(task, 0, r"\boxed{\frac{1}{2}}", 1.0),
        scored(task, 1, r"\boxed{\sin 30^\circ}", 0.0),
        scored(task, 2, r"\boxed{7}", 0.0),
        scored(task, 3, r"\boxed{1/2}", 0.0),  # recorded as wrong by an older, buggy verifier
    )
    folder = tmp_path / "runs" / "saved"
    with RunWriter.create(folder, config) as writer:
        writer.write_rollouts(
            1, [ScoredGroup(task=task, rollouts=rollouts)], [[1.0, -1.0, -1.0, -1.0]], [[None] * 4]
        )
    return folder


def test_judging_again_prints_what_changed(run):
    code, lines, told = verify("--run", run)
    assert code == 0, told
    *changed, last = lines
    assert [line["id"] for line in changed] == ["1/half/3"]
    assert (changed[0]["before"], changed[0]["score"]) == ({"numeric": 0.0}, 1.0)
    assert last["summary"] == {"rollouts": 4, "changed": 1, "unjudged": 0}


def test_judging_again_with_another_verifier_compares_with_the_recorded_channel_of_its_name(run):
    code, lines, _ = verify("--run", run, "-v", "math", "--all")
    assert code == 0
    assert [line["score"] for line in lines[:-1]] == [1.0, 1.0, 0.0, 1.0]


def test_an_audit_prints_what_a_second_opinion_accepts(run):
    code, lines, told = verify("--audit", run, "--second", "math")
    assert code == 1, told
    *mismatches, last = lines
    assert sorted(line["text"] for line in mismatches) == [r"\boxed{1/2}", r"\boxed{\sin 30^\circ}"]
    assert mismatches[0]["first"] == "as recorded"
    summary = last["summary"]
    assert (summary["rejected"], summary["examined"], summary["overturned"]["count"]) == (3, 3, 2)
    # Wilson at 2 of 3: (2/3 + z^2/6 -+ z sqrt(2/27 + z^2/36)) / (1 + z^2/3), z^2 = 3.8415
    assert summary["overturned"]["low"] == pytest.approx(0.2077, abs=1e-3)
    assert summary["overturned"]["high"] == pytest.approx(0.9385, abs=1e-3)


def test_a_run_whose_data_is_gone_is_judged_from_its_record(run, tmp_path):
    (tmp_path / "data.jsonl").unlink()
    code, lines, told = verify("--run", run)
    assert code == 0
    assert lines[-1]["summary"]["changed"] == 1
    assert "without the data's other columns" in told
