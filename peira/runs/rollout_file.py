"""One line per group of rollouts: compact, complete, readable with any JSON tool.

    {"step": 12, "group": 0, "task": {"id", "source", "prompt", "answer", "verifier"}, "prompt_ids": [...],
     "rollouts": [{"id", "outcome", "reward", "excluded", "advantage", "dropped", "shaping": {name: x},
                   "verdicts": {channel: {"score", "status", "detail", "parts", "step_scores", "flags"}},
                   "turns": [{"prompt_ids", "token_ids", "logprobs", "text", "stop_reason",
                              "policy_version"}]}]}

A turn's `prompt_ids` is left out where it equals the group's, as in the first turn of every rollout of an
ordinary group. The training mask is not stored: it is True exactly at the tokens of `token_ids`. Log-probs
are float32 numbers in their shortest decimal form, so nothing is lost when they were float32 before. Fields
with nothing in them are left out.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from peira.errors import RunError
from peira.runs.jsonl import number
from peira.runs.ledger import DropReason
from peira.types.rollout import Completion, Rollout, StopReason, Turn
from peira.types.scored import ScoredGroup, ScoredRollout
from peira.types.task import Message, Task
from peira.types.verdict import Verdict, VerdictStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedGroup:
    """A group as it was written: the scored rollouts and what became of them."""

    step: int
    index: int
    """Which group of the step, from 0."""
    group: ScoredGroup
    advantages: tuple[float | None, ...]
    """None for rollouts that had none."""
    fates: tuple[DropReason | None, ...]
    """Why a rollout was dropped; None for those trained on."""


def group_to_json(
    step: int,
    index: int,
    group: ScoredGroup,
    advantages: Sequence[float | None],
    fates: Sequence[DropReason | None],
) -> dict[str, Any]:
    """The line of `rollouts/step-N.jsonl`."""
    first = group.rollouts[0].rollout.turns[0].prompt_ids if group.rollouts else ()
    return {
        "step": step,
        "group": index,
        "task": _task_to_json(group.task),
        "prompt_ids": list(first),
        "rollouts": [
            _without_nothing(
                {
                    "id": scored.rollout.id,
                    "outcome": scored.outcome,
                    "reward": scored.reward,
                    "excluded": scored.excluded,
                    "advantage": advantage,
                    "dropped": fate.value if fate is not None else None,
                    "shaping": dict(scored.shaping),
                    "verdicts": {
                        channel: _verdict_to_json(verdict) for channel, verdict in scored.verdicts.items()
                    },
                    "turns": [_turn_to_json(turn, first) for turn in scored.rollout.turns],
                }
            )
            for scored, advantage, fate in zip(group.rollouts, advantages, fates, strict=True)
        ],
    }


def group_from_json(record: Mapping[str, Any]) -> RecordedGroup:
    """The group that `group_to_json` wrote.

    Raises:
        RunError: the record has another shape.
    """
    try:
        task = _task_from_json(record["task"])
        scored, advantages, fates = [], [], []
        for item in record["rollouts"]:
            rollout = Rollout(
                id=item["id"],
                task=task,
                turns=tuple(
                    _turn_from_json(turn, record["prompt_ids"], item["id"], index)
                    for index, turn in enumerate(item["turns"])
                ),
            )
            scored.append(
                ScoredRollout(
                    rollout=rollout,
                    verdicts={
                        name: _verdict_from_json(value) for name, value in item.get("verdicts", {}).items()
                    },
                    outcome=_optional(item.get("outcome")),
                    reward=_optional(item.get("reward")),
                    excluded=item.get("excluded", ""),
                    shaping={name: number(value) for name, value in item.get("shaping", {}).items()},
                )
            )
            advantages.append(_optional(item.get("advantage")))
            fates.append(DropReason(item["dropped"]) if "dropped" in item else None)
        return RecordedGroup(
            step=record["step"],
            index=record["group"],
            group=ScoredGroup(task=task, rollouts=tuple(scored)),
            advantages=tuple(advantages),
            fates=tuple(fates),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"rollouts: expected the shape that group_to_json gives: {error!r}") from error


def float32(values: Sequence[float]) -> list[float]:
    """The float32 nearest to each value, as the float whose decimal form is the shortest that means it.

    Example:
        >>> float32([-0.6931471824645996])  # ln(1/2) in float32
        [-0.6931472]
    """
    rounded = array("f", values)
    return [_shortest(value) for value in rounded]


def _shortest(value: float) -> float:
    for digits in (7, 8):
        short = float(f"{value:.{digits}g}")
        if array("f", (short,))[0] == value:
            return short
    return float(f"{value:.9g}")  # 9 significant digits always identify a float32


def _turn_to_json(turn: Turn, group_prompt: tuple[int, ...]) -> dict[str, Any]:
    completion = turn.completion
    record: dict[str, Any] = {
        "token_ids": list(completion.token_ids),
        "logprobs": float32(completion.logprobs),
        "text": turn.text,
        "stop_reason": completion.stop_reason.value,
        "policy_version": completion.policy_version,
    }
    if turn.prompt_ids != group_prompt:
        record["prompt_ids"] = list(turn.prompt_ids)
    return record


def _turn_from_json(
    item: Mapping[str, Any], group_prompt: Sequence[int], rollout_id: str, index: int
) -> Turn:
    return Turn(
        prompt_ids=tuple(item.get("prompt_ids", group_prompt)),
        completion=Completion(
            request_id=rollout_id,
            index=index,
            token_ids=tuple(item["token_ids"]),
            logprobs=tuple(number(value) for value in item["logprobs"]),
            stop_reason=StopReason(item["stop_reason"]),
            policy_version=item["policy_version"],
        ),
        text=item["text"],
    )


def _task_to_json(task: Task) -> dict[str, Any]:
    prompt = task.prompt if isinstance(task.prompt, str) else [asdict(message) for message in task.prompt]
    return _without_nothing(
        {
            "id": task.id,
            "source": task.source,
            "prompt": prompt,
            "answer": task.answer,
            "verifier": task.verifier,
        }
    )


def _task_from_json(item: Mapping[str, Any]) -> Task:
    prompt = item.get("prompt", "")
    return Task(
        id=item["id"],
        prompt=prompt if isinstance(prompt, str) else tuple(Message(**message) for message in prompt),
        answer=item.get("answer"),
        verifier=item.get("verifier"),
        source=item.get("source", ""),
    )


def _verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    return _without_nothing(
        {
            "score": verdict.score,
            "status": verdict.status.value,
            "detail": verdict.detail,
            "parts": dict(verdict.parts),
            "step_scores": list(verdict.step_scores),
            "flags": list(verdict.flags),
        }
    )


def _verdict_from_json(item: Mapping[str, Any]) -> Verdict:
    return Verdict(
        score=_optional(item.get("score")),
        status=VerdictStatus(item["status"]),
        detail=item.get("detail", ""),
        parts={name: number(value) for name, value in item.get("parts", {}).items()},
        step_scores=tuple(number(value) for value in item.get("step_scores", ())),
        flags=tuple(item.get("flags", ())),
    )


def _optional(value: Any) -> float | None:
    return None if value is None else number(value)


def _without_nothing(record: dict[str, Any]) -> dict[str, Any]:
    """Leave out None and empty text, tuples and mappings; numbers and False stay."""
    return {
        key: value for key, value in record.items() if value is not None and value != "" and not _empty(value)
    }


def _empty(value: Any) -> bool:
    return isinstance(value, Mapping | tuple | list) and not value


def groups_to_json(
    step: int,
    groups: Sequence[ScoredGroup],
    advantages: Sequence[Sequence[float | None]],
    fates: Sequence[Sequence[DropReason | None]],
) -> Iterator[dict[str, Any]]:
    """The lines of a step's file, in the order of the groups."""
    rows = zip(groups, advantages, fates, strict=True)
    return (group_to_json(step, index, *row) for index, row in enumerate(rows))
