"""What every source of tasks promises, whatever holds the rows."""

import json
import pickle

import pytest

from peira.config.data import SourceConfig
from peira.data.fingerprint import content_hash
from peira.data.prompt import PromptStyle
from peira.data.source import TaskSource, open_source

ROWS = [{"question": f"What is {i} + 1?", "answer": str(i + 1), "level": i % 3} for i in range(6)]


def stored(tmp_path, kind):
    import datasets

    datasets.disable_progress_bars()
    match kind:
        case "jsonl":
            (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
            return SourceConfig(path=str(tmp_path / "a.jsonl"))
        case "json":
            (tmp_path / "a.json").write_text(json.dumps(ROWS))
            return SourceConfig(path=str(tmp_path / "a.json"))
        case "parquet":
            datasets.Dataset.from_list(ROWS).to_parquet(tmp_path / "a.parquet")
            return SourceConfig(path=str(tmp_path / "a.parquet"))
        case "folder":
            datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "a")
            return SourceConfig(path=str(tmp_path / "a"))
        case _:
            return SourceConfig(path=kind, size=6)


KINDS = ("jsonl", "json", "parquet", "folder", "reasoning_gym:basic_arithmetic", "synthetic:addition")


@pytest.fixture(scope="module", params=KINDS)
def source(request, tmp_path_factory):
    return open_source(stored(tmp_path_factory.mktemp("data"), request.param))


@pytest.fixture(scope="module")
def table(source):
    return source.load(PromptStyle())


def test_a_source_is_a_task_source_and_gives_a_row_per_place(source, table):
    assert isinstance(source, TaskSource)
    assert table.name == source.name
    assert len(table.tasks) == len(table.places) == len(table.keys) == 6
    assert len(set(table.places)) == 6
    assert table.reading


def test_loading_twice_gives_equal_tables(source, table):
    again = source.load(PromptStyle())
    assert content_hash(again.tasks) == content_hash(table.tasks)
    assert again.keys == table.keys


def test_every_task_has_an_id_a_prompt_an_answer_and_its_source(source, table):
    for task in table.tasks:
        assert task.id
        assert task.prompt[-1].role == "user"
        assert task.prompt[-1].content.strip()
        assert task.answer is not None
        assert task.source == source.name


def test_the_style_changes_prompts_and_neither_ids_nor_keys(source, table):
    style = PromptStyle(system="Be brief.", template="{question} Now.")
    dressed = source.load(style)
    assert [task.id for task in table.tasks] == [task.id for task in dressed.tasks]
    assert table.keys == dressed.keys
    for before, after in zip(table.tasks, dressed.tasks, strict=True):
        assert after.prompt[0].content == "Be brief."
        assert after.prompt[-1].content == before.prompt[-1].content + " Now."


def test_tables_travel_to_other_processes(table):
    assert content_hash(pickle.loads(pickle.dumps(table)).tasks) == content_hash(table.tasks)
