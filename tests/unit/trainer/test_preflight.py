"""Checks before training, with verifiers that know, do not know, break, and disagree."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from peira.config.verifier import ExactConfig, FormatConfig, FunctionConfig, MathConfig, NumericConfig
from peira.engines.scripted import ScriptedEngine
from peira.errors import SyncError
from peira.trainer.preflight import (
    MAX_TASKS,
    Outcome,
    check_rendering,
    check_sampling,
    check_sync,
    check_verifiers,
    spread,
)
from peira.types.rollout import SamplingParams
from peira.types.task import Message, Task
from peira.types.verdict import Attempt, Verdict, VerdictStatus

TASKS = [Task(id=f"t{i}", prompt=f"Say {i}.", answer=str(i)) for i in range(6)]


class Letters:
    """One id per character; 0 ends."""

    vocabulary_size, end_ids, pad_id = 128, (0,), 0

    def __init__(self, *, drops: str = "") -> None:
        self.drops = drops

    def render(self, prompt: str | tuple[Message, ...]) -> tuple[int, ...]:
        text = prompt if isinstance(prompt, str) else "\n".join(f"{m.role}: {m.content}" for m in prompt)
        return tuple(ord(c) for c in text if c not in self.drops)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return "".join(chr(i) for i in token_ids if i or not skip_special_tokens)


Judged = Callable[[Task, Attempt], Verdict]


def judge(**channels: Judged):
    async def run(attempts: Sequence[tuple[Task, Attempt]]) -> list[Mapping[str, Verdict]]:
        return [
            {name: verdict(task, attempt) for name, verdict in channels.items()} for task, attempt in attempts
        ]

    return run


def exact(task: Task, attempt: Attempt) -> Verdict:
    return Verdict(score=float(attempt.text == str(task.answer)))


def boxed(task: Task, attempt: Attempt) -> Verdict:
    return Verdict(score=float(f"boxed{{{task.answer}}}" in attempt.text))


def one_check(config, verdict: Judged, tasks: Sequence[Task] = TASKS):
    (check,) = asyncio.run(check_verifiers(judge(**{config.name or config.kind: verdict}), [config], tasks))
    return check


def test_a_verifier_is_shown_right_and_wrong_answers_in_the_form_it_reads():
    check = one_check(MathConfig(), boxed)
    assert check.outcome is Outcome.PASSED
    assert check.detail == r"gold 1.00, wrong 0.00, written as 'So the answer is \\boxed{...}.'"
    assert "written as '...'" in one_check(ExactConfig(), exact).detail


def test_a_verifier_that_accepts_everything_or_nothing_fails():
    for score in (0.0, 1.0):
        check = one_check(
            NumericConfig(), lambda task, attempt, score=score: Verdict(score=score, detail="so it is")
        )
        assert check.outcome is Outcome.FAILED
        assert (
            "reference answers do not score above wrong ones; task 't0', answer '0': so it is" in check.detail
        )


def test_a_verifier_that_prefers_wrong_answers_fails():
    check = one_check(ExactConfig(), lambda t, a: Verdict(score=1.0 - (exact(t, a).score or 0.0)))
    assert check.outcome is Outcome.FAILED


def test_a_verifier_that_judges_nothing_fails_with_its_reason():
    check = one_check(MathConfig(), lambda t, a: Verdict.broken(VerdictStatus.ERROR, "no library"))
    assert check.outcome is Outcome.FAILED
    assert check.detail == "judges nothing: error: no library"


def test_a_verifier_that_cannot_read_some_references_is_to_be_looked_at():
    def picky(task: Task, attempt: Attempt) -> Verdict:
        return Verdict(score=0.0, detail="odd") if task.id == "t3" else exact(task, attempt)

    check = one_check(ExactConfig(), picky)
    # five of six references score 1: 5/6 = 0.83
    assert check.outcome is Outcome.WARNED
    assert check.detail.startswith("gold 0.83, wrong 0.00")
    assert "1 reference answers are not accepted" in check.detail
    assert "task 't3', answer '3': odd" in check.detail


def test_a_function_that_ignores_the_answer_is_only_to_be_looked_at():
    check = one_check(FunctionConfig(ref="f.py:f"), lambda t, a: Verdict(score=0.5))
    assert check.outcome is Outcome.WARNED
    assert "does not depend on the answer" in check.detail


def test_a_verifier_of_shapes_has_no_gold_text_but_must_judge():
    config = FormatConfig(pattern="x")
    check = one_check(config, lambda t, a: Verdict(score=0.0))
    assert check.outcome is Outcome.SKIPPED
    assert "no gold text can be formed" in check.detail
    broken = one_check(config, lambda t, a: Verdict.broken(VerdictStatus.TIMEOUT, "10 s"))
    assert broken.outcome is Outcome.FAILED


def test_answers_of_many_lines_or_parts_form_no_gold_text():
    tasks = [replace(task, answer={"tests": []}) for task in TASKS]
    check = one_check(FunctionConfig(ref="f.py:f"), exact, tasks)
    assert (check.outcome, check.detail) == (
        Outcome.SKIPPED,
        "no gold text can be formed: no task has an answer in one line",
    )


def test_answers_that_no_attempt_can_be_judged_by_fail():
    tasks = [replace(task, answer=["1", "7"]) for task in TASKS]
    check = one_check(
        NumericConfig(), lambda t, a: Verdict.broken(VerdictStatus.ERROR, "answer: expected a number"), tasks
    )
    assert (check.outcome, check.detail) == (
        Outcome.FAILED,
        "judges nothing: error: answer: expected a number",
    )


def test_missing_answers_fail_verifiers_that_compare():
    tasks = [*TASKS, replace(TASKS[0], id="bare", answer=None)]
    check = one_check(ExactConfig(), exact, tasks)
    assert check.outcome is Outcome.FAILED
    assert check.detail.startswith("1 of 7 tasks have no answer to compare with, first 'bare'")
    # unless the task is another verifier's
    other = [*TASKS, replace(TASKS[0], id="bare", answer=None, verifier="other")]
    assert one_check(ExactConfig(), exact, other).outcome is Outcome.PASSED


def test_equal_answers_everywhere_still_have_a_wrong_one():
    tasks = [replace(task, answer="7") for task in TASKS]
    assert one_check(ExactConfig(), exact, tasks).outcome is Outcome.PASSED


def test_somebodys_function_is_called_on_few_tasks():
    seen: set[str] = set()

    def watch(task: Task, attempt: Attempt) -> Verdict:
        seen.add(task.id)
        return exact(task, attempt)

    many = [Task(id=str(i), prompt="p", answer=str(i)) for i in range(100)]
    one_check(FunctionConfig(ref="f.py:f"), watch, many)
    assert seen == {"0", "25", "50", "75"}
    seen.clear()
    one_check(ExactConfig(), watch, many)
    assert len(seen) == MAX_TASKS


def test_spread_takes_all_of_few_and_evenly_of_many():
    assert spread(TASKS, 10) == TASKS
    assert [task.id for task in spread(TASKS, 3)] == ["t0", "t2", "t4"]


def test_a_prompt_must_come_back_from_its_ids():
    messages = (
        Message(role="system", content="Be brief."),
        Message(role="user", content="What is \n 1 + 1?"),
    )
    check = check_rendering(Letters(), Task(id="a", prompt=messages))
    assert check.outcome is Outcome.PASSED
    lossy = check_rendering(Letters(drops="+"), Task(id="a", prompt=messages))
    assert lossy.outcome is Outcome.FAILED
    assert "'What is \\n 1 + 1?' does not come back" in lossy.detail
    assert check_rendering(Letters(), Task(id="a", prompt="1 + 1")).outcome is Outcome.PASSED


def engine() -> ScriptedEngine:
    return ScriptedEngine(vocabulary_size=128, end_ids=(0,), completions=[tuple(map(ord, "[b]so 4"))])


def test_the_weight_sync_proof_is_shown():
    check = asyncio.run(check_sync(engine()))
    # 16 positions x 128 ids x 4 bytes = 8192 bytes
    assert check.outcome is Outcome.PASSED
    assert check.detail.startswith("1 tensors, 0.0 MB, canary gap 0.0e+00 nats")


def test_a_failed_weight_sync_is_a_failed_check(monkeypatch):
    machine = engine()

    async def stale():
        raise SyncError("sync_weights: canary gap = 0.4")

    monkeypatch.setattr(machine, "sync_weights", stale)
    check = asyncio.run(check_sync(machine))
    assert (check.outcome, check.detail) == (Outcome.FAILED, "sync_weights: canary gap = 0.4")


@pytest.mark.parametrize(
    ("max_tokens", "said"),
    # seven characters and the end token; or cut at three
    [(16, "8 tokens, ended by end: '[b]so 4'"), (3, "3 tokens, ended by length: '[b]'")],
)
def test_one_completion_is_shown_as_it_came(max_tokens, said):
    check = asyncio.run(
        check_sampling(
            engine(), Letters(), TASKS[0], SamplingParams(max_tokens=max_tokens), seed=0, show=repr
        )
    )
    assert (check.outcome, check.detail) == (Outcome.PASSED, said)
