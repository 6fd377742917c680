"""Plain numbers as exact fractions. The grammar is checked before anything is evaluated."""

import re
from fractions import Fraction
from typing import Any

from peira.verifiers.answer import plain_digits

MAX_DIGITS = 1000
_INTEGER = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_DECIMAL = rf"(?:{_INTEGER}(?:\.\d*)?|\.\d+)"
_NUMBER = re.compile(
    rf"(?P<sign>[-+]?)\s*(?:[$\u20ac\u00a3]\s*)?(?P<sign2>[-+]?)"
    rf"(?:\\[dt]?frac\{{\s*(?P<top>[-+]?\d+)\s*\}}\s*\{{\s*(?P<bottom>[-+]?\d+)\s*\}}"
    rf"|(?P<value>{_DECIMAL})(?:[eE](?P<exponent>[-+]?\d{{1,3}}))?(?:\s*/\s*(?P<divisor>{_DECIMAL}))?)"
    r"\s*(?P<percent>\\?%)?",
    re.ASCII,
)


def read_number(text: str) -> Fraction | None:
    r"""The number this text is, and nothing but: 1,000 and .5 and -3/4 and 50% and 1.5e3 and \frac{1}{2}.

    None when it is not one, has a zero divisor, or has more than a thousand digits.

    Example:
        >>> read_number("1,250.50"), read_number("50%"), read_number("1,00")
        (Fraction(2501, 2), Fraction(1, 2), None)
    """
    text = plain_digits(text).strip()
    if not text or len(text) > MAX_DIGITS:
        return None
    for wrapper in ("$$", "$"):
        if len(text) > 2 * len(wrapper) and text.startswith(wrapper) and text.endswith(wrapper):
            text = text.removeprefix(wrapper).removesuffix(wrapper).strip()
    text = text.replace("{,}", ",").replace("\\,", "").replace("\\!", "").replace("\\$", "$")
    match = _NUMBER.fullmatch(text)
    if match is None or (match["sign"] and match["sign2"]):
        return None
    try:
        if match["top"] is not None:
            value = Fraction(int(match["top"]), int(match["bottom"]))
        else:
            value = Fraction(match["value"].replace(",", ""))
            if match["exponent"]:
                value *= Fraction(10) ** int(match["exponent"])
            if match["divisor"]:
                value /= Fraction(match["divisor"].replace(",", ""))
    except (ValueError, ZeroDivisionError):
        return None
    if match["percent"]:
        value /= 100
    return -value if "-" in (match["sign"], match["sign2"]) else value


def reference_number(answer: Any) -> Fraction | None:
    """The number a dataset gives as the answer: a JSON number, or text; after "####" if that is there."""
    if isinstance(answer, bool) or answer is None:
        return None
    if isinstance(answer, int):
        return Fraction(answer)
    text = str(answer)
    return read_number(text.rsplit("####", 1)[-1])


# A number may be dressed in these; anything else that touches it makes it part of something larger.
_CANDIDATE = re.compile(r"\\[dt]?frac\{[^{}]{1,40}\}\{[^{}]{1,40}\}\\?%?|[^\s=:;()\[\]<>~\"'`*|]+")
_DIGIT = re.compile(r"\d", re.ASCII)


def last_number(text: str) -> str | None:
    r"""The last number in a text, as it stands there; "" when the last digits are part of something else.

    `2^10`, `x2` and `3km` end in digits that are not a number by themselves; an earlier number is not taken
    instead of them, since it was not the last word.

    Example:
        >>> last_number("37 + 58 = 95."), last_number("95, then 2^10"), last_number("none")
        ('95', '', None)
    """
    text = plain_digits(text)
    found = [match for match in _CANDIDATE.finditer(text) if _DIGIT.search(match.group())]
    if not found:
        return None
    token = found[-1].group().rstrip(".,!?$\\")
    before = text[: found[-1].start()].rstrip()
    if read_number(token) is None or before.endswith(("^", "_", "^{", "_{")):
        return ""
    return token
