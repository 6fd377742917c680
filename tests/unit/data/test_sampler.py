import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peira.data.sampler import Pool, TaskSampler
from peira.errors import CheckpointError, DataError
from peira.types.task import Task


def tasks(count, prefix="t"):
    return tuple(Task(id=f"{prefix}{i}", prompt=f"{prefix}{i}", answer=str(i)) for i in range(count))


def ids(drawn):
    return [task.id for task in drawn]


def test_every_task_comes_once_per_epoch_in_a_new_order():
    sampler = TaskSampler.of(tasks(50), seed=0)
    first, second = ids(sampler.draw(50)), ids(sampler.draw(50))
    assert sorted(first) == sorted(second) == sorted(ids(tasks(50)))
    assert first != second
    assert first != ids(tasks(50))


def test_without_shuffling_the_rows_come_in_order_again_and_again():
    sampler = TaskSampler.of(tasks(3), seed=0, shuffle=False)
    assert ids(sampler.draw(7)) == ["t0", "t1", "t2", "t0", "t1", "t2", "t0"]


def test_one_draw_may_be_larger_than_an_epoch():
    assert Counter(ids(TaskSampler.of(tasks(4), seed=1).draw(12))) == dict.fromkeys(ids(tasks(4)), 3)


@given(cuts=st.lists(st.integers(0, 9), max_size=8), seed=st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_the_order_does_not_depend_on_how_it_is_cut_into_draws(cuts, seed):
    whole = ids(TaskSampler.of(tasks(7), seed=seed).draw(sum(cuts)))
    sampler = TaskSampler.of(tasks(7), seed=seed)
    assert [name for cut in cuts for name in ids(sampler.draw(cut))] == whole


def test_seeds_differ_and_the_order_of_the_rows_does_not_matter():
    drawn = ids(TaskSampler.of(tasks(30), seed=0).draw(30))
    assert ids(TaskSampler.of(tasks(30), seed=1).draw(30)) != drawn
    assert ids(TaskSampler.of(tasks(30)[::-1], seed=0).draw(30)) == drawn


@given(position=st.integers(0, 60), more=st.integers(0, 40))
@settings(max_examples=50, deadline=None)
def test_a_restored_sampler_goes_on_exactly(position, more):
    def fresh():
        pools = [
            Pool(name="a", tasks=tasks(7, "a"), weight=3),
            Pool(name="b", tasks=tasks(5, "b"), weight=0.5),
        ]
        return TaskSampler(pools, seed=4)

    one = fresh()
    one.draw(position)
    state = json.loads(json.dumps(one.state()))
    other = fresh()
    other.restore(state)
    assert other.position == position
    assert ids(other.draw(more)) == ids(one.draw(more))


@given(
    weights=st.lists(st.sampled_from([0.1, 0.25, 1.0, 2.0, 3.0, 7.5]), min_size=1, max_size=5),
    draws=st.integers(1, 200),
)
@settings(max_examples=100, deadline=None)
def test_every_pool_has_its_share_to_within_the_number_of_pools(weights, draws):
    pools = [Pool(name=f"p{i}", tasks=tasks(3, f"p{i}-"), weight=weight) for i, weight in enumerate(weights)]
    drawn = Counter(name.split("-")[0] for name in ids(TaskSampler(pools, seed=0).draw(draws)))
    for i, weight in enumerate(weights):
        assert abs(drawn[f"p{i}"] - draws * weight / sum(weights)) < len(weights)


def test_weights_three_to_one_give_one_in_four():
    # shares 3 and 1 of 4. Deficits 3*k - 4*a and 1*k - 4*b before draw k: k=1: 3, 1 -> a; k=2: 2, 2 -> a
    # (ties go to the first); k=3: 1, 3 -> b; k=4: 4, 0 -> a; and so on with period 4
    pools = [Pool(name="a", tasks=tasks(1, "a"), weight=3), Pool(name="b", tasks=tasks(1, "b"), weight=1)]
    assert ids(TaskSampler(pools, seed=0).draw(8)) == ["a0", "a0", "b0", "a0"] * 2


def test_epochs_are_counted_by_pool():
    pools = [Pool(name="a", tasks=tasks(4, "a")), Pool(name="b", tasks=tasks(2, "b"))]
    sampler = TaskSampler(pools, seed=0)
    sampler.draw(6)
    assert sampler.epochs == {"a": 0.75, "b": 1.5}
    assert sampler.num_tasks == 6


def change_answer(pool):
    return (*pool[:-1], Task(id=pool[-1].id, prompt=pool[-1].prompt, answer="other"))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (TaskSampler.of(tasks(5), seed=1), r"data: seed = 1: expected 0"),
        (TaskSampler.of(tasks(5), seed=0, shuffle=False), r"data: shuffle = False: expected True"),
        (TaskSampler.of(tasks(6), seed=0), r"data: tasks: tasks = 6: expected 5"),
        (
            TaskSampler.of(change_answer(tasks(5)), seed=0),
            r"data: tasks: fingerprint = '\w+': expected '\w+'",
        ),
        (TaskSampler([Pool(name="b", tasks=tasks(5))], seed=0), r"sampler state = \['tasks'\]"),
        (TaskSampler([Pool(name="tasks", tasks=tasks(5), weight=2)], seed=0), r"data: tasks: weight = 2"),
    ],
)
def test_other_data_under_a_checkpoint_is_detected_and_changes_nothing(other, words):
    state = TaskSampler.of(tasks(5), seed=0).state()
    other.draw(3)
    with pytest.raises(CheckpointError, match=words):
        other.restore(state)
    assert other.position == 3


def test_a_state_that_is_none_is_refused():
    with pytest.raises(CheckpointError, match="sampler state"):
        TaskSampler.of(tasks(5), seed=0).restore({})


def test_rows_that_only_changed_places_are_the_same_data_when_shuffled():
    sampler = TaskSampler.of(tasks(5)[::-1], seed=0)
    sampler.restore(TaskSampler.of(tasks(5), seed=0).state())
    with pytest.raises(CheckpointError, match="fingerprint"):
        TaskSampler.of(tasks(5)[::-1], seed=0, shuffle=False).restore(
            TaskSampler.of(tasks(5), seed=0, shuffle=False).state()
        )


def test_a_filtered_sampler_starts_over_with_what_is_left():
    sampler = TaskSampler.of(tasks(6), seed=0)
    sampler.draw(3)
    even = sampler.filter(lambda task: int(task.answer) % 2 == 0)
    assert even.position == 0
    assert sorted(ids(even.draw(3))) == ["t0", "t2", "t4"]
    with pytest.raises(DataError, match="tasks = no tasks"):
        sampler.filter(lambda task: False)


def test_pools_need_names_of_their_own():
    with pytest.raises(DataError, match="with different names"):
        TaskSampler([Pool(name="a", tasks=tasks(1)), Pool(name="a", tasks=tasks(1))], seed=0)
