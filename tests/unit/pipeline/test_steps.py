"""Where steps end, in text and in tokens."""

import pytest

from peira.pipeline.steps import step_ends


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one step", [8]),
        ("a\n\nb", [3, 4]),
        ("a\n\nb\n\n", [3, 6]),  # nothing behind the last separator
        ("\n\na", [2, 3]),  # a completion that begins with white space begins with a step
        ("a\n\n  \n\nb", [7, 8]),  # white space belongs to the step before
        ("", [0]),
    ],
)
def test_a_step_ends_behind_its_separators(text, expected):
    assert step_ends(text, "\n\n") == expected
