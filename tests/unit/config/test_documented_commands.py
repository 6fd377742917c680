"""Every `peira` line of the documentation has options that exist and settings that are accepted."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from peira.cli.main import app
from peira.config.load import load_config

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts),
]
LINE = re.compile(r"^\s*(?:[^`]*\| )?(?:\.venv/bin/)?peira ([a-z]+) ([^`]*)$")
COMMANDS = [
    pytest.param(match[1], match[2].partition(" | ")[0].replace(" [", " #"), id=f"{page.name}:{number}")
    for page in PAGES
    for number, text in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
    if (match := LINE.match(text)) is not None
]


def test_there_are_commands_to_look_at():
    assert {"train", "eval", "doctor", "verify", "report"} <= {str(found.values[0]) for found in COMMANDS}


@pytest.mark.parametrize(("command", "text"), COMMANDS)
def test_a_documented_command_is_understood(command, text, tmp_path):
    words = shlex.split(text.rstrip("\\"), comments=True)
    group = typer.main.get_command(app)
    with group.make_context("peira", [command, *words]) as context:  # type: ignore[arg-type]
        _, found, rest = group.resolve_command(context, [command, *words])
        found.make_context(command, list(rest)).close()
    if command in ("train", "eval", "doctor"):
        recipe, *overrides = [word for word in words if not word.startswith("-")]
        if recipe.startswith("recipes/"):
            place = ROOT / recipe
            assert place.is_file(), f"{recipe} is not there"
        else:  # the reader's own
            place = tmp_path / "recipe.yaml"
            place.write_text("model: tiny-arith\ndata: tasks.jsonl\nverifier: numeric\n")
        load_config(place, [word for word in overrides if "=" in word], notice=lambda _: None)
