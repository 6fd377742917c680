"""Small scored groups, made by hand."""

from collections.abc import Sequence

from peira.types.rollout import Completion, Rollout, StopReason, Turn
from peira.types.scored import ScoredGroup, ScoredRollout
from peira.types.task import Message, Task
from peira.types.verdict import Verdict


def scored_rollout(
    task: Task, index: int, reward: float | None, *, num_tokens: int = 3, text: str = "so: 4"
) -> ScoredRollout:
    completion = Completion(
        request_id=task.id,
        index=index,
        token_ids=tuple(range(10, 10 + num_tokens)),
        logprobs=(-0.5,) * num_tokens,
        stop_reason=StopReason.END,
        policy_version=3,
    )
    return ScoredRollout(
        rollout=Rollout(
            id=f"1/{task.id}/{index}",
            task=task,
            turns=(Turn(prompt_ids=(1, 2), completion=completion, text=text),),
        ),
        verdicts={"math": Verdict(score=reward, detail="read 4, expected 4")} if reward is not None else {},
        outcome=reward,
        reward=reward,
        excluded="" if reward is not None else "timeout",
    )


def scored_group(rewards: Sequence[float | None], *, name: str = "sum-1", num_tokens: int = 3) -> ScoredGroup:
    task = Task(id=name, prompt=(Message(role="user", content="2 + 2 = ?"),), answer="4", source="sums")
    return ScoredGroup(
        task=task,
        rollouts=tuple(
            scored_rollout(task, index, reward, num_tokens=num_tokens) for index, reward in enumerate(rewards)
        ),
    )
