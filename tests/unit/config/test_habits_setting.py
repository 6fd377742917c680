"""Patterns of habits are checked before anything loads."""

import pytest

from peira.config.load import load_config
from peira.errors import ConfigError

BASE = {"model": "some/model", "data": "tasks.jsonl", "verifier": "math"}


def test_a_habit_is_a_name_and_a_pattern():
    run = load_config(BASE, ['logging.habits={code: "def ", hedge: "[Ww]ait"}'])
    assert run.logging.habits == {"code": "def ", "hedge": "[Ww]ait"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{code: '('}", r"habits\.code = '\(': expected a regular expression"), ("{'a/b': x}", "habits")],
)
def test_a_broken_pattern_or_name_is_refused(text, reason):
    with pytest.raises(ConfigError, match=reason):
        load_config(BASE, [f"logging.habits={text}"])
