"""The crossing from lists to tensors, on two groups small enough to write out."""

import torch

from peira.pipeline.pack import behaviour_table, pack, reward_table, split_updates, trainable_rows
from peira.types.rollout import Completion, Rollout, StopReason, Turn
from peira.types.scored import ScoredGroup, ScoredRollout
from peira.types.task import Task


def rollout(task: Task, index: int, tokens: tuple[int, ...], *, prompt: tuple[int, ...] = (7, 8)) -> Rollout:
    completion = Completion(
        request_id=task.id,
        index=index,
        token_ids=tokens,
        logprobs=tuple(-0.5 * (i + 1) for i in range(len(tokens))),
        stop_reason=StopReason.END,
        policy_version=3,
    )
    return Rollout(
        id=f"0/{task.id}/{index}",
        task=task,
        turns=(Turn(prompt_ids=prompt, completion=completion, text=""),),
    )


def scored(task_id: str, rows: list[tuple[tuple[int, ...], float | None]], **changes) -> ScoredGroup:
    task = Task(id=task_id, prompt="")
    return ScoredGroup(
        task=task,
        rollouts=tuple(
            ScoredRollout(
                rollout=rollout(task, i, tokens, **changes), verdicts={}, outcome=reward, reward=reward
            )
            for i, (tokens, reward) in enumerate(rows)
        ),
    )


def unit_weights(mask, *, dead_sequences=0, dead_tokens=0):
    return mask.float() / (mask.sum() + dead_tokens)


def test_an_unjudged_rollout_has_no_reward_rather_than_zero():
    rewards, judged = reward_table([scored("a", [((1,), 1.0), ((2,), None)])])
    assert rewards[0, 0] == 1.0
    assert rewards[0, 1].isnan()
    assert judged.tolist() == [[True, False]]


def test_collapsed_groups_and_unjudged_members_are_not_trained_on():
    groups = [
        scored("dead", [((1,), 1.0), ((2,), 1.0)]),
        scored("live", [((1,), 1.0), ((2,), None), ((3,), 0.0)]),
    ]
    advantages = torch.tensor([[0.0, 0.0, 0.0], [0.5, 0.0, -0.5]])
    judged = torch.tensor([[True, True, False], [True, False, True]])
    assert trainable_rows(groups, advantages, judged) == [(1, 0), (1, 2)]


def test_an_empty_completion_has_nothing_to_train_on():
    groups = [scored("a", [((), 0.0), ((1,), 1.0)])]
    advantages, judged = torch.tensor([[-0.5, 0.5]]), torch.ones(1, 2, dtype=torch.bool)
    assert trainable_rows(groups, advantages, judged) == [(0, 1)]


def test_columns_stand_at_the_tokens_they_speak_of():
    groups = [scored("a", [((1, 2, 3), 1.0), ((4,), 0.0)])]
    advantages, judged = torch.tensor([[0.5, -0.5]]), torch.ones(1, 2, dtype=torch.bool)
    (update,) = split_updates(groups, [(0, 0), (0, 1)], judged, num_updates=1)
    batch = pack(groups, update, advantages, weights=unit_weights, pad_id=0, temperature=0.7)
    # prompt 7 8, then the completion, then padding
    assert batch.token_ids.tolist() == [[7, 8, 1, 2, 3], [7, 8, 4, 0, 0]]
    assert batch.mask.tolist() == [[False, False, True, True, True], [False, False, True, False, False]]
    assert batch.lengths.tolist() == [5, 3]
    assert batch.prompt_lengths.tolist() == [2, 2]
    assert batch.sampling_logprobs.tolist() == [[0, 0, -0.5, -1.0, -1.5], [0, 0, -0.5, 0, 0]]
    assert batch.advantages[0].tolist() == [0.5] * 5
    assert batch.weights.sum() == 1.0  # four trained tokens of 1/4
    assert batch.policy_version.tolist() == [3, 3]


def test_the_first_token_is_never_trained_on_when_there_is_no_prompt():
    groups = [scored("a", [((1, 2), 1.0), ((3, 4), 0.0)], prompt=())]
    advantages, judged = torch.tensor([[0.5, -0.5]]), torch.ones(1, 2, dtype=torch.bool)
    (update,) = split_updates(groups, [(0, 0), (0, 1)], judged, num_updates=1)
    batch = pack(groups, update, advantages, weights=unit_weights, pad_id=0, temperature=1.0)
    assert batch.mask.tolist() == [[False, True], [False, True]]


def test_updates_get_whole_groups_and_count_the_dead_beside_them():
    # groups 0 and 1 go to the first update, 2 and 3 to the second; 1 and 2 are dead
    groups = [
        scored(name, [((1, 2), 1.0), ((3, 4, 5), reward)])
        for name, reward in [("a", 0.0), ("b", 1.0), ("c", 1.0), ("d", 0.0)]
    ]
    judged = torch.ones(4, 2, dtype=torch.bool)
    judged[2, 1] = False
    first, second = split_updates(groups, [(0, 0), (0, 1), (3, 0), (3, 1)], judged, num_updates=2)
    assert first.rows == ((0, 0), (0, 1))
    assert (first.dead_sequences, first.dead_tokens) == (2, 5)
    assert second.rows == ((3, 0), (3, 1))
    assert (second.dead_sequences, second.dead_tokens) == (1, 2)  # the unjudged one is not counted


def test_an_update_without_signal_is_no_update():
    groups = [scored("a", [((1,), 1.0), ((2,), 0.0)]), scored("b", [((1,), 1.0), ((2,), 1.0)])]
    judged = torch.ones(2, 2, dtype=torch.bool)
    assert len(split_updates(groups, [(0, 0), (0, 1)], judged, num_updates=2)) == 1


def test_micro_batches_count_a_shared_prompt_once():
    groups = [scored("a", [((1, 2), 1.0), ((3, 4), 0.0)]), scored("b", [((1, 2), 1.0), ((3, 4), 0.0)])]
    judged = torch.ones(2, 2, dtype=torch.bool)
    rows = [(0, 0), (0, 1), (1, 0), (1, 1)]
    (update,) = split_updates(groups, rows, judged, num_updates=1)
    batch = pack(groups, update, torch.ones(2, 2), weights=unit_weights, pad_id=0, temperature=1.0)
    # one group: prompt 2 + two completions of 2 = 6 tokens; both groups: 12
    assert [piece.num_sequences for piece in batch.split(12)] == [4]
    assert [piece.num_sequences for piece in batch.split(11)] == [3, 1]
    assert [piece.num_sequences for piece in batch.split(6)] == [2, 2]
    assert [piece.num_sequences for piece in batch.split(1)] == [1, 1, 1, 1]
    assert torch.cat([piece.token_ids for piece in batch.split(6)]).equal(batch.token_ids)


def test_a_repeated_completion_is_a_duplicate_of_the_earlier_one():
    truncated, duplicate = behaviour_table([scored("a", [((1,), 1.0), ((2,), 0.0), ((1,), 1.0)])])
    assert duplicate.tolist() == [[False, False, True]]
    assert truncated.tolist() == [[False, False, False]]
