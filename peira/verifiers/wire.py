"""Tasks, attempts and verdicts as JSON, between a remote verifier and the service that answers it.

    POST /verify  {"items": [{"task": {"id", "prompt", "answer", "verifier", "info", "source"},
                              "attempt": {"text", "stop_reason", "token_ids", "messages", "state"}}]}
               -> {"verdicts": [{channel: {"score", "status", "detail", "parts", "step_scores", "flags"}}]}

Fields with nothing in them may be left out. A status that is not "scored" follows `VerdictStatus`.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from peira.types.rollout import StopReason
from peira.types.task import Message, Task
from peira.types.verdict import Attempt, Verdict, VerdictStatus


def task_to_json(task: Task) -> dict[str, Any]:
    """A task as it travels."""
    prompt = task.prompt if isinstance(task.prompt, str) else [asdict(message) for message in task.prompt]
    return {
        "id": task.id,
        "prompt": prompt,
        "answer": task.answer,
        "verifier": task.verifier,
        "info": dict(task.info),
        "source": task.source,
    }


def task_from_json(item: Mapping[str, Any]) -> Task:
    """The task that was sent.

    Raises:
        ValueError: it has another shape.
    """
    return Task(
        id=_text(item, "id", "remote"),
        prompt=_prompt(item.get("prompt", "")),
        answer=item.get("answer"),
        verifier=item.get("verifier"),
        info=_mapping(item, "info"),
        source=_text(item, "source", ""),
    )


def attempt_to_json(attempt: Attempt) -> dict[str, Any]:
    """An attempt as it travels."""
    return {
        "text": attempt.text,
        "stop_reason": attempt.stop_reason.value,
        "token_ids": list(attempt.token_ids),
        "messages": [asdict(message) for message in attempt.messages],
        "state": dict(attempt.state),
    }


def attempt_from_json(item: Mapping[str, Any]) -> Attempt:
    """The attempt that was sent.

    Raises:
        ValueError: it has another shape.
    """
    if not isinstance(item.get("text"), str):
        raise ValueError("attempt.text: expected a text")
    messages = _prompt(item.get("messages", []))
    return Attempt(
        text=item["text"],
        stop_reason=StopReason(item.get("stop_reason", "end")),
        token_ids=tuple(int(token) for token in item.get("token_ids", ())),
        messages=() if isinstance(messages, str) else messages,
        state=_mapping(item, "state"),
    )


def verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    """A verdict as it travels."""
    return {
        "score": verdict.score,
        "status": verdict.status.value,
        "detail": verdict.detail,
        "parts": dict(verdict.parts),
        "step_scores": list(verdict.step_scores),
        "flags": list(verdict.flags),
    }


def verdict_from_json(item: Mapping[str, Any]) -> Verdict:
    """The verdict that came back.

    Raises:
        ValueError: it has another shape, or breaks a verdict's own rules.
    """
    score = item.get("score")
    if score is not None and (isinstance(score, bool) or not isinstance(score, int | float)):
        raise ValueError(f"score = {score!r}: expected a number or null")
    return Verdict(
        score=score,
        status=VerdictStatus(item.get("status", "scored")),
        detail=_text(item, "detail", ""),
        parts={str(name): float(value) for name, value in _mapping(item, "parts").items()},
        step_scores=tuple(float(value) for value in item.get("step_scores", ())),
        flags=tuple(str(flag) for flag in item.get("flags", ())),
    )


def _text(item: Mapping[str, Any], name: str, default: str) -> str:
    value = item.get(name, default)
    if not isinstance(value, str):
        raise ValueError(f"{name} = {value!r:.80}: expected a text")
    return value


def _mapping(item: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = item.get(name, {})
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} = {value!r:.80}: expected an object")
    return dict(value)


def _prompt(value: Any) -> str | tuple[Message, ...]:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not all(
        isinstance(m, Mapping) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str)
        for m in value
    ):
        raise ValueError(f"{value!r:.80}: expected a text or a list of messages with role and content")
    return tuple(Message(role=m["role"], content=m["content"]) for m in value)
