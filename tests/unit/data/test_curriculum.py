"""Tasks drawn by pass rate."""

import json
from collections import Counter

import pytest

from peira.config.data import CurriculumConfig
from peira.data.curriculum import CurriculumSampler
from peira.data.sampler import Pool, TaskSampler
from peira.errors import CheckpointError, DataError
from peira.types.task import Task


def tasks(n, prefix="t"):
    return tuple(Task(id=f"{prefix}{i}", prompt="?") for i in range(n))


def sampler(n=4, *, seed=0, pools=None, **settings):
    pools = pools or [Pool(name="all", tasks=tasks(n))]
    return CurriculumSampler(pools, seed=seed, settings=CurriculumConfig(**settings))


def ids(drawn):
    return [task.id for task in drawn]


def test_weight_and_pass_rate_by_hand():
    found = sampler()
    hopeless, even, unseen, _ = found.tasks
    found.observe(hopeless, passed=0, judged=8)
    found.observe(even, passed=4, judged=8)
    # Beta(1, 9): 6 x 9 / (10 x 11); Beta(5, 5): 6 x 25 / 110; Beta(1, 1): 6 / (2 x 3) = 1
    assert found.weight(hopeless) == pytest.approx(54 / 110)
    assert found.weight(even) == pytest.approx(150 / 110)
    assert found.weight(unseen) == pytest.approx(1)
    assert [found.expected_pass_rate(task) for task in (hopeless, even, unseen)] == [0.1, 0.5, 0.5]


def test_older_evidence_fades():
    found = sampler(memory=0.5)
    (task, *_) = found.tasks
    found.observe(task, passed=0, judged=8)
    found.observe(task, passed=8, judged=8)  # half of 8 failures is left, beside 8 passes: (8 + 1) / (12 + 2)
    assert found.expected_pass_rate(task) == pytest.approx(9 / 14)
    found.observe(task, passed=0, judged=0)  # nobody was judged: nothing is learnt, nothing fades
    assert found.expected_pass_rate(task) == pytest.approx(9 / 14)


def test_shares_of_draws_follow_the_weights():
    found = sampler(2, explore=0.2)
    hopeless, even = found.tasks
    found.observe(hopeless, passed=0, judged=8)
    found.observe(even, passed=4, judged=8)
    counts = Counter(ids(task for _ in range(4000) for task in found.draw(1)))
    # .8 w + .2 mean: 54 -> 43.2 + 20.4 = 63.6, 150 -> 120 + 20.4 = 140.4 (of 204)
    assert counts["t1"] / 4000 == pytest.approx(140.4 / 204, abs=0.03)  # four standard errors


def test_exploring_always_is_drawing_evenly():
    found = sampler(2, explore=1)
    found.observe(found.tasks[0], passed=0, judged=1000)
    counts = Counter(ids(task for _ in range(2000) for task in found.draw(1)))
    assert counts["t0"] / 2000 == pytest.approx(0.5, abs=0.05)


def test_no_task_comes_twice_in_a_draw_unless_more_are_asked_for_than_there_are():
    found = sampler(5)
    for _ in range(20):
        assert len(set(ids(found.draw(5)))) == 5
    assert sorted(Counter(ids(found.draw(7))).values()) == [1, 1, 1, 2, 2]


def test_pools_keep_their_weights():
    pools = [Pool(name="a", tasks=tasks(9, "a"), weight=3), Pool(name="b", tasks=tasks(9, "b"))]
    found = sampler(pools=pools)
    for task in pools[1].tasks:
        found.observe(task, passed=4, judged=8)  # more to learn in b; its share stays a quarter
    counts = Counter(name[0] for _ in range(10) for name in ids(found.draw(4)))
    assert counts == {"a": 30, "b": 10}


def test_a_restored_sampler_goes_on_exactly():
    first = sampler(20)
    for task in first.draw(8):
        first.observe(task, passed=int(task.id[1:]) % 3, judged=4)
    state = json.loads(json.dumps(first.state()))
    again = sampler(20)
    again.restore(state)
    for _ in range(5):
        drawn = first.draw(3)
        assert again.draw(3) == drawn
        for each in (first, again):
            each.observe(drawn[0], passed=2, judged=4)
    assert again.state() == first.state()
    assert ids(sampler(20, seed=1).draw(8)) != ids(sampler(20).draw(8))


def test_what_was_seen_is_told():
    found = sampler(4)
    found.draw(2)
    found.observe(found.tasks[0], passed=38, judged=38)  # 39 / 40
    found.observe(found.tasks[1], passed=0, judged=8)  # 1 / 10
    assert found.metrics() == {
        "data/tasks": 2,
        "data/epoch": 0.5,
        "data/seen_fraction": 0.5,
        "data/pass_rate_mean": pytest.approx((39 / 40 + 1 / 10) / 2),
        "data/mastered_fraction": 0.5,
    }


def test_a_checkpoint_without_pass_rates_and_tasks_of_one_name_are_refused():
    plain = TaskSampler.of(tasks(4), seed=0)
    with pytest.raises(CheckpointError, match=r"data: curriculum = on.*start a new run"):
        sampler().restore(plain.state())
    with pytest.raises(DataError, match="expected each once"):
        sampler(pools=[Pool(name="a", tasks=tasks(1)), Pool(name="b", tasks=tasks(1))])


def test_filtering_keeps_the_kind():
    kept = sampler(4).filter(lambda task: task.id != "t0")
    assert isinstance(kept, CurriculumSampler)
    assert kept.num_tasks == 3
