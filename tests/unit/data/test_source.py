import json
import random
import subprocess
import sys

import datasets
import pytest

from peira.config.data import SourceConfig
from peira.data.fingerprint import content_hash
from peira.data.prompt import PromptStyle
from peira.data.source import open_source
from peira.errors import ConfigError, DataError

ROWS = [{"prompt": f"{i} + 1 = ?", "answer": str(i + 1)} for i in range(5)]


def load(path, **settings):
    return open_source(SourceConfig(path=str(path), **settings)).load(PromptStyle())


@pytest.fixture
def jsonl(tmp_path):
    path = tmp_path / "sums.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    return path


def test_a_jsonl_file_gives_its_rows_with_places_and_content_ids(jsonl):
    table = load(jsonl)
    assert table.name == "sums"
    assert [task.answer for task in table.tasks] == ["1", "2", "3", "4", "5"]
    assert table.places[4] == "sums.jsonl: line 5"
    assert len({task.id for task in table.tasks}) == 5
    assert all(task.source == "sums" for task in table.tasks)


def test_size_takes_the_first_rows_and_more_than_there_are_is_refused(jsonl):
    assert len(load(jsonl, size=2).tasks) == 2
    with pytest.raises(DataError, match="size = 6: expected at most the 5 rows"):
        load(jsonl, size=6)


def test_a_verifier_named_in_the_settings_goes_before_that_of_the_rows(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "x", "verifier": "exact"}')
    assert load(path).tasks[0].verifier == "exact"
    assert load(path, verifier="math").tasks[0].verifier == "math"


@pytest.mark.parametrize("content", ["", "\n \n", "\ufeff\n"])
def test_an_empty_file_is_refused(tmp_path, content):
    path = tmp_path / "empty.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=r"empty\.jsonl: no rows"):
        load(path)


@pytest.mark.parametrize(
    ("name", "near"), [("summs.jsonl", True), ("nowhere/sums.jsonl", False), ("./sums.jsnl", True)]
)
def test_a_missing_file_is_named_with_the_nearest(jsonl, monkeypatch, name, near):
    monkeypatch.chdir(jsonl.parent)
    with pytest.raises(DataError, match="no such file") as caught:
        load(name)
    assert ("nearest: 'sums.jsonl'" in str(caught.value)) == near


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl.gz", "a.txt"])
def test_another_kind_of_file_is_refused_with_those_that_are_read(name):
    with pytest.raises(ConfigError, match=r"expected a file ending in \.jsonl"):
        load(name)


def test_split_and_subset_mean_nothing_for_a_single_file(jsonl):
    with pytest.raises(ConfigError, match="split = 'test': no meaning for the single file"):
        load(jsonl, split="test")


def test_a_folder_of_files_is_read_by_split(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "sums"
    folder.mkdir()
    for split, rows in (("train", ROWS), ("test", ROWS[:2])):
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    datasets.disable_progress_bars()
    assert len(load(folder).tasks) == 5
    assert load(folder, split="test").places[1].endswith("sums [test]: row 1")
    with pytest.raises(DataError, match="cannot be read as a dataset"):
        load(folder, split="dev")


def test_a_folder_that_datasets_saved_is_read_whole_or_by_split(tmp_path):
    datasets.disable_progress_bars()
    table = datasets.Dataset.from_list(ROWS)
    table.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": table, "test": table.select([0])}).save_to_disk(tmp_path / "two")
    assert len(load(tmp_path / "one").tasks) == 5
    assert len(load(tmp_path / "two", split="test").tasks) == 1
    with pytest.raises(ConfigError, match=r"split = 'tets': expected one of train, test \(nearest: 'test'\)"):
        load(tmp_path / "two", split="tets")


def test_an_empty_folder_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="cannot be read as a dataset"):
        load(tmp_path / "empty")


def test_a_hub_dataset_without_a_network_is_refused_with_a_way_out(monkeypatch):
    code = (
        "from peira.config.data import SourceConfig\n"
        "from peira.data.prompt import PromptStyle\n"
        "from peira.data.source import open_source\n"
        "open_source(SourceConfig(path='nobody/nothing')).load(PromptStyle())\n"
    )
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = child.stderr.strip().splitlines()[-1]
    assert "DataError: data.path = 'nobody/nothing': no such file or folder here" in last
    assert "download it elsewhere and give its folder" in last


def test_reasoning_gym_tasks_keep_what_their_scorer_needs():
    from reasoning_gym.factory import get_score_answer_fn

    table = load("reasoning_gym:basic_arithmetic", size=4, seed=3, options={"max_terms": 2})
    for task in table.tasks:
        entry = {"question": task.info["question"], "answer": task.answer, "metadata": task.info["metadata"]}
        score = get_score_answer_fn(task.info["metadata"]["source_dataset"])
        assert score(task.answer, entry) == 1.0
        assert score("no number", entry) < 1.0
        assert task.prompt[-1].content == task.info["question"]
    assert table.tasks[0].info["generator"] == {"seed": 3, "size": 4, "max_terms": 2}


@pytest.mark.parametrize("family", ["list_functions", "isomorphic_strings"])
def test_reasoning_gym_gives_the_same_tasks_in_every_process(monkeypatch, family):
    # one of these follows the global random state, the other the hashing of strings
    tables = []
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        random.seed(seed)
        tables.append(load(f"reasoning_gym:{family}", size=6))
    assert content_hash(tables[0].tasks) == content_hash(tables[1].tasks)


@pytest.mark.parametrize(
    ("family", "options", "words"),
    [
        ("contdown", {}, r"'reasoning_gym:contdown': expected one of .*\(nearest: 'countdown'\)"),
        ("countdown", {"min_number": 3}, r"options.min_number: no such option \(nearest: 'min_numbers'\)"),
        ("countdown", {"min_numbers": 9, "max_numbers": 3}, "refused by the family"),
        ("countdown", {"min_numbers": "many"}, "refused by the family"),
        ("countdown", {"min_numbers": {1}}, "expected what JSON can hold"),
    ],
)
def test_families_and_options_of_reasoning_gym_are_checked(family, options, words):
    with pytest.raises(ConfigError, match=words):
        load(f"reasoning_gym:{family}", size=2, options=options)


def test_synthetic_addition_is_right_distinct_and_fixed_by_its_seed():
    table = load("synthetic:addition", size=300, options={"digits": 2})
    for task in table.tasks:
        a, b = task.info["a"], task.info["b"]
        assert 10 <= min(a, b) <= max(a, b) <= 99
        assert task.prompt[-1].content == f"What is {a} + {b}? Answer with just the number."
        assert task.answer == str(a + b)
    assert len(set(table.keys)) == 300
    assert load("synthetic:addition", size=300).tasks == table.tasks
    assert load("synthetic:addition", size=300, seed=1).tasks != table.tasks


def test_synthetic_families_cover_their_whole_space_and_no_more():
    # one digit: 1 to 9, 81 pairs
    assert len(set(load("synthetic:multiplication", size=81, options={"digits": 1}).keys)) == 81
    with pytest.raises(ConfigError, match="size = 82: expected at most 81"):
        load("synthetic:multiplication", size=82, options={"digits": 1})


@pytest.mark.parametrize(
    ("family", "options", "words"),
    [
        ("adition", {}, r"expected one of addition, .*\(nearest: 'addition'\)"),
        ("addition", {"digit": 3}, r"options.digit: no such option \(nearest: 'digits'\)"),
        ("addition", {"digits": 0}, "digits = 0: expected a whole number from 1 to 18"),
        ("addition", {"digits": "2"}, "digits = '2': expected a whole number"),
    ],
)
def test_synthetic_families_and_options_are_checked(family, options, words):
    with pytest.raises(ConfigError, match=words):
        load(f"synthetic:{family}", options=options)
