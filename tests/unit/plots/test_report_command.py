"""`peira report` from the shell."""

from pathlib import Path

import pytest

from peira.cli.main import main
from peira.cli.report import changed_settings
from peira.runs.writer import RunWriter

RECIPE = """\
model: tiny-arith
data: {sources: [{path: "synthetic:addition", size: 100}]}
verifier: numeric
algorithm: {name: grpo, clip_high: 0.3}
optimizer: {lr: 0.0003}
"""


def run_command(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["report", *words])
    return int(ended.value.code or 0)


def test_the_page_is_written_where_it_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunWriter.create(tmp_path / "run", RECIPE) as run:
        run.write_metrics(1, {"reward/mean": 0.5})
    page = tmp_path / "page.html"
    assert run_command(str(tmp_path / "run"), "--out", str(page), "--open", "no") == 0
    assert capsys.readouterr().out.startswith(f"{page} (")
    text = page.read_text()
    assert "optimizer.lr" in text
    assert "must be given" in text
    assert not (tmp_path / "run" / "report.html").exists()


def test_a_run_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunWriter.create(tmp_path / "runs" / "mine", "a: 1"):
        pass
    monkeypatch.chdir(tmp_path)
    assert run_command("mine", "--open", "no") == 0
    assert (tmp_path / "runs" / "mine" / "report.html").exists()


def test_no_such_run_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(str(tmp_path / "nothing"), "--open", "no") == 2
    assert "nothing: expected a folder that `peira train` wrote" in capsys.readouterr().err


def test_settings_are_compared_with_the_defaults_of_their_preset(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(RECIPE)
    changed = changed_settings(tmp_path / "config.yaml")
    assert changed["optimizer.lr"] == (3e-4, 1e-6)
    assert changed["algorithm.clip_high"] == (0.3, 0.2)  # grpo clips at 0.2 on both sides
    assert "algorithm.clip_low" not in changed
    assert changed["data.sources.0.size"] == (100, None)


def test_settings_of_another_version_are_no_reason_to_refuse(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("from_the_future: 1\n")
    assert changed_settings(tmp_path / "config.yaml") == {}
    assert changed_settings(tmp_path / "missing.yaml") == {}
