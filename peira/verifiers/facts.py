"""Deterministic checks of facts that a model read out of an answer; questions that give their truth away."""

import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any, Literal, get_args

from peira.errors import VerifierError

AnswerType = Literal["number", "count", "choice", "set", "string", "bool", "bbox"]

_NUMBER = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:[eE][+-]?\d{1,3})?(?:/\d+)?")
_YES, _NO = {"yes", "true", "y"}, {"no", "false", "n"}


def normalised_truth(answer_type: str, truth: Any, choices: Sequence[str], place: str) -> Any:
    """The truth in the form that `check` compares.

    Raises:
        VerifierError: the type is unknown, or the truth is not of it.
    """
    if answer_type not in get_args(AnswerType):
        raise VerifierError(
            f"{place}: answer_type = {answer_type!r}: expected one of {list(get_args(AnswerType))}"
        )
    value = normalised(answer_type, truth)
    if value is None:
        raise VerifierError(f"{place}: gt = {truth!r}: expected a {answer_type}")
    if (
        answer_type == "choice"
        and choices
        and value not in {normalised("choice", choice) for choice in choices}
    ):
        raise VerifierError(f"{place}: gt = {truth!r}: expected one of {list(choices)}")
    return value


def check(answer_type: AnswerType, stated: Any, truth: Any, tolerance: float = 0.0) -> float:
    """1 when the stated value is the truth, else 0; for sets and boxes with a tolerance, see below.

    number: within `tolerance`, absolute or relative. bbox (x0, y0, x1, y1): intersection over union of at
    least 1 - tolerance. set: the same members. What is not one value of its type scores 0.

    Example:
        >>> check("number", "12.50 cm", 12.5, 1e-2), check("number", "12 or 12.5", 12.5, 1e-2)
        (1.0, 0.0)
    """
    value = normalised(answer_type, stated)
    if value is None:
        return 0.0
    if answer_type == "number":
        return float(math.isclose(value, truth, rel_tol=tolerance, abs_tol=tolerance))
    if answer_type == "bbox":
        return float(overlap(value, truth) >= 1 - tolerance - 1e-12)
    return float(value == truth)


def normalised(answer_type: str, value: Any) -> Any:
    """A value of that type in one form, or None when it is not exactly one."""
    if answer_type in ("number", "count"):
        number = _number(value)
        if number is None or (answer_type == "count" and (number < 0 or number != int(number))):
            return None
        return number
    if answer_type == "bool":
        if isinstance(value, bool):
            return value
        word = _words(value) if isinstance(value, str) else ""
        return True if word in _YES else False if word in _NO else None
    if answer_type == "set":
        if isinstance(value, str):
            value = re.split(r"[,;\n]", value)
        if not isinstance(value, list | tuple | set) or any(
            not isinstance(item, str | int | float) for item in value
        ):
            return None
        return frozenset(word for item in value if (word := _words(str(item))))
    if answer_type == "bbox":
        if not isinstance(value, list | tuple) or len(value) != 4:
            return None
        corners = [_number(item) for item in value]
        if any(corner is None for corner in corners):
            return None
        x0, y0, x1, y1 = (corner for corner in corners if corner is not None)
        return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = _words(str(value))
    if answer_type == "choice":
        letter = re.fullmatch(r"(?:option |choice |answer )?\(?([a-z])[).:]?", text)
        text = letter[1] if letter else text
    return text or None


def overlap(one: Sequence[float], other: Sequence[float]) -> float:
    """Intersection over union of two boxes."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(0.0, width) * max(0.0, height)
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return shared / (areas - shared)


def leaks(ask: str, answer_type: str, truth: Any) -> bool:
    """Whether a question states its own truth. Letters, yes and no are too short to say."""
    if answer_type in ("bool", "choice") and len(str(truth)) < 3:
        return False
    if answer_type in ("number", "count"):
        return any(_number(found) == truth for found in _NUMBER.findall(ask) if found)
    if answer_type == "bool":
        return False
    text = f" {_words(ask)} "
    members = truth if answer_type == "set" else [truth] if answer_type in ("string", "choice") else []
    return bool(members) and all(len(member) > 1 and f" {member} " in text for member in members)


def _number(value: Any) -> float | None:
    """The one number in a value: units and a currency sign may stand beside it, a second number may not."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e300 and value == value else None
    if not isinstance(value, str) or len(value) > 200:
        return None
    found = [
        match
        for match in _NUMBER.findall(unicodedata.normalize("NFKC", value))
        if any(map(str.isdigit, match))
    ]
    if len(found) != 1:
        return None
    try:
        top, _, bottom = found[0].replace(",", "").partition("/")
        number = float(top) / float(bottom or 1)
    except (ValueError, ZeroDivisionError):
        return None
    return number if math.isfinite(number) else None


def _words(text: str) -> str:
    """Folded case, one blank between words, punctuation at the ends gone."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(word for part in folded.split() if (word := part.strip(".,;:!?\"'`")))
