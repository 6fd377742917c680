"""Whether a program's output is what was expected. Runs in the trusted process, on plain data only."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from peira.sandbox.guest import Foreign


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What counts as the same. The defaults forgive only white space at the ends of lines.

    Example:
        >>> exact, loose = Comparison(), Comparison(containers="loose", float_tolerance=1e-6)
        >>> exact.same(True, 1), exact.same((1, 2), [1, 2])
        (False, False)
        >>> loose.same((1, 2.0000001), [1, 2.0])
        True
    """

    float_tolerance: float | None = None
    """Relative and absolute; None compares floats exactly. With a tolerance an int may stand for a float."""
    nan_equal: bool = False
    """Whether nan may be expected at all; otherwise nothing equals it."""
    containers: Literal["exact", "loose"] = "exact"
    """exact: a tuple is no list, a subclass of dict no dict; loose: sequences and mappings by their items."""
    whitespace: Literal["exact", "lines", "tokens"] = "lines"
    """For standard output. lines: blanks at line ends and blank lines at the end do not count; tokens: only
    the words count."""

    def same(self, got: Any, expected: Any) -> bool:
        """Whether a returned value is the expected one: types first, then contents."""
        if self.containers == "loose":
            got, expected = _loosened(got), _loosened(expected)
        if type(expected) is float and type(got) in (float, int):
            return self._same_number(got, expected)
        if type(got) is not type(expected) or isinstance(got, Foreign):
            return False
        if isinstance(expected, dict):
            return len(got) == len(expected) and all(
                key in got and self.same(_key_of(got, key), key) and self.same(got[key], value)
                for key, value in expected.items()
            )
        if isinstance(expected, list | tuple):
            return len(got) == len(expected) and all(map(self.same, got, expected))
        if isinstance(expected, set | frozenset):
            return len(got) == len(expected) and _match(list(got), list(expected), self)
        return bool(got == expected)

    def same_output(self, got: bytes, expected: str) -> bool:
        """Whether standard output, taken whole, is the expected text."""
        try:
            text = got.decode("utf-8", errors="strict")
        except UnicodeDecodeError:
            return False
        if self.whitespace == "exact" and self.float_tolerance is None:
            return text == expected
        ours, theirs = self._split(text), self._split(expected)
        return len(ours) == len(theirs) and all(
            len(line) == len(wanted) and all(map(self._same_word, line, wanted))
            for line, wanted in zip(ours, theirs, strict=True)
        )

    def _split(self, text: str) -> list[list[str]]:
        if self.whitespace == "tokens":
            return [text.split()]
        lines = text.split("\n")
        if self.whitespace == "lines":
            lines = [line.rstrip() for line in lines]
            while lines and not lines[-1]:
                lines.pop()
        return [line.split(" ") for line in lines]

    def _same_word(self, got: str, expected: str) -> bool:
        if got == expected or self.float_tolerance is None or not any(c in expected for c in ".eE"):
            return got == expected
        if not (got.isascii() and expected.isascii()) or len(got) > 64:
            return False
        try:
            return self._same_number(float(got), float(expected))
        except ValueError:
            return False

    def _same_number(self, got: float | int, expected: float) -> bool:
        if math.isnan(expected):
            return self.nan_equal and type(got) is float and math.isnan(got)
        if self.float_tolerance is None:
            return type(got) is float and got == expected
        try:
            tolerance = self.float_tolerance
            return math.isclose(got, expected, rel_tol=tolerance, abs_tol=tolerance)
        except OverflowError:
            return False


def _loosened(value: Any) -> Any:
    if isinstance(value, Foreign) and isinstance(value.value, list | tuple | dict | set | frozenset):
        value = value.value
    if isinstance(value, tuple):
        return list(value)
    return set(value) if isinstance(value, frozenset) else value


def _key_of(mapping: Mapping[Any, Any], key: Any) -> Any:
    """The key as the mapping holds it: True finds 1, and must not count as it."""
    return next(held for held in mapping if held == key)


def _match(got: Sequence[Any], expected: list[Any], rules: Comparison) -> bool:
    for item in got:
        index = next((i for i, wanted in enumerate(expected) if rules.same(item, wanted)), None)
        if index is None:
            return False
        del expected[index]
    return True
