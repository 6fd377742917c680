"""Every `peira train`, `eval` and `doctor` line of the documentation has settings that are accepted."""

import re
import shlex
from pathlib import Path

import pytest

from peira.config.load import load_config

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINE = re.compile(r"^\s*(?:\.venv/bin/)?peira (train|eval|doctor) (.*)$")
COMMANDS = [
    pytest.param(match[2], id=f"{page.name}:{number}")
    for page in PAGES
    for number, text in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
    if (match := LINE.match(text)) is not None
]


def test_there_are_commands_to_look_at():
    assert len(COMMANDS) > 10


@pytest.mark.parametrize("command", COMMANDS)
def test_the_settings_of_a_documented_command_are_accepted(command, tmp_path):
    recipe, *rest = shlex.split(command, comments=True)
    if recipe.startswith("recipes/"):
        place = ROOT / recipe
        assert place.is_file(), f"{recipe} is not there"
    else:  # the reader's own
        place = tmp_path / "recipe.yaml"
        place.write_text("model: tiny-arith\ndata: tasks.jsonl\nverifier: numeric\n")
    overrides = [word for word in rest if "=" in word and not word.startswith("-")]
    load_config(place, overrides, notice=lambda _: None)
