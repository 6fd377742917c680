import json

import datasets
import pytest

from peira.build.data import build_tasks, limit_prompts
from peira.config.data import DataConfig
from peira.errors import ConfigError, DataError


def write(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def sums(start, count):
    return [{"prompt": f"{i} + 1 = ?", "answer": str(i + 1)} for i in range(start, start + count)]


def test_every_row_is_accounted_for(tmp_path):
    rows = [*sums(0, 50), *sums(0, 5), {"prompt": "0 + 1 = ?", "answer": "2"}]
    sets = build_tasks(DataConfig(path=write(tmp_path / "a.jsonl", rows)), seed=0)
    report = sets.report
    # 56 rows: 5 repeat others, and one gives another answer to a prompt that is there
    assert (report.duplicates, report.overlap, report.conflicts) == (5, 0, 1)
    assert report.sources[0].num_rows == 56
    assert report.sources[0].num_train + report.sources[0].num_held_out == 51
    assert sets.train.num_tasks == report.sources[0].num_train
    assert len(sets.held_out) == report.sources[0].num_held_out
    text = "\n".join(report.lines())
    assert "5 repeated rows left out" in text
    assert "a.jsonl: line 51 has the prompt of a.jsonl: line 1" in text
    json.dumps(report.to_json())


def test_held_out_and_training_prompts_are_disjoint_and_ids_unique_over_both():
    sets = build_tasks(DataConfig(path="synthetic:addition"), seed=0)
    train, held_out = {t.prompt for t in sets.train.tasks}, {t.prompt for t in sets.held_out}
    assert held_out
    assert not train & held_out
    names = [task.id for task in (*sets.train.tasks, *sets.held_out)]
    assert len(set(names)) == len(names) == 500
    assert set(sets.places) == set(names)


def test_the_split_does_not_change_with_seed_system_prompt_or_template():
    plain = build_tasks(DataConfig(path="synthetic:addition"), seed=0)
    dressed = build_tasks(
        DataConfig(path="synthetic:addition", system_prompt="Add.", prompt_template="{prompt} Now."), seed=1
    )
    assert [task.answer for task in plain.held_out] == [task.answer for task in dressed.held_out]
    assert dressed.held_out[0].prompt[0].content == "Add."
    assert dressed.held_out[0].prompt[1].content.endswith("number. Now.")


def test_held_out_data_of_its_own_is_used_whole_and_overlap_leaves_training(tmp_path):
    config = DataConfig(
        path=write(tmp_path / "a.jsonl", sums(0, 10)), eval_path=write(tmp_path / "b.jsonl", sums(7, 10))
    )
    sets = build_tasks(config, seed=0)
    assert len(sets.held_out) == 10
    assert sorted(task.prompt[0].content[0] for task in sets.train.tasks) == list("0123456")
    assert sets.report.overlap == 3
    with pytest.raises(DataError, match=r"a\.jsonl: line 8 has the held-out prompt of b\.jsonl: line 1"):
        build_tasks(config.model_copy(update={"duplicates": "error"}), seed=0)
    kept = build_tasks(config.model_copy(update={"duplicates": "keep"}), seed=0)
    assert kept.train.num_tasks == 10
    assert "3 training rows with a held-out prompt kept" in "\n".join(kept.report.lines())


def test_training_on_nothing_but_held_out_tasks_is_refused(tmp_path):
    path = write(tmp_path / "a.jsonl", sums(0, 4))
    with pytest.raises(DataError, match="all 4 rows repeat others or are held out"):
        build_tasks(DataConfig(path=path, eval_path=path), seed=0)


def test_a_mixture_draws_by_weight_and_tells_equal_names_apart(tmp_path):
    (tmp_path / "x").mkdir()
    paths = write(tmp_path / "a.jsonl", sums(0, 30)), write(tmp_path / "x" / "a.jsonl", sums(100, 30))
    config = DataConfig(sources=({"path": paths[0]}, {"path": paths[1], "weight": 3}), held_out_fraction=0)
    sets = build_tasks(config, seed=0)
    drawn = [task.source for task in sets.train.draw(40)]
    assert (drawn.count("a"), drawn.count("a-2")) == (10, 30)
    assert sets.held_out == ()
    twice = tuple({"path": path, "name": "n"} for path in paths)
    with pytest.raises(ConfigError, match="name = 'n': expected another name"):
        build_tasks(DataConfig(sources=twice), seed=0)


def test_two_splits_of_one_dataset_are_named_by_split(tmp_path):
    datasets.disable_progress_bars()
    table = datasets.Dataset.from_list(sums(0, 4))
    datasets.DatasetDict({"train": table, "test": table.select([0])}).save_to_disk(tmp_path / "sums")
    folder = str(tmp_path / "sums")
    config = DataConfig(path=folder, eval_sources=({"path": folder, "split": "test"},))
    sets = build_tasks(config, seed=0)
    assert [source.name for source in sets.report.sources] == ["sums", "sums-test"]
    assert sets.held_out[0].source == "sums-test"
    assert sets.train.num_tasks == 3


def test_equal_ids_in_two_sources_stay_apart(tmp_path):
    one = write(tmp_path / "a.jsonl", [{"id": 0, "prompt": "x"}])
    two = write(tmp_path / "b.jsonl", [{"id": 0, "prompt": "y"}])
    sets = build_tasks(DataConfig(path=one, eval_path=two), seed=0)
    assert sets.train.tasks[0].id != sets.held_out[0].id


def test_prompts_too_long_leave_both_sides_or_stop_the_run(tmp_path):
    rows = [{"prompt": "x" * n, "answer": str(n)} for n in range(1, 41)]
    sets = build_tasks(DataConfig(path=write(tmp_path / "a.jsonl", rows)), seed=0)

    def count(task):
        return len(task.prompt[0].content)

    short = limit_prompts(sets, count, max_tokens=30, long_prompts="drop")
    assert max(map(count, (*short.train.tasks, *short.held_out))) <= 30
    left_out = len(short.report.train_lengths.dropped) + len(short.report.held_out_lengths.dropped)
    assert left_out == 10
    assert "left out as too long" in "\n".join(short.report.lines())
    with pytest.raises(DataError, match="prompts are longer; the longest, in tokens: '"):
        limit_prompts(sets, count, max_tokens=30, long_prompts="error")
