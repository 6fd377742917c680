r"""Where in a completion the answer stands.

One committed answer per completion: what comes earlier never changes what is read, so that spraying
candidates cannot raise the hit rate.
"""

import re
import unicodedata

from peira.types.rollout import StopReason
from peira.types.verdict import Attempt, Verdict, VerdictStatus

_THINK = re.compile(r"<(/?)(?:think|thinking|reasoning)>", re.IGNORECASE)
_TOKEN = re.compile(r"\\f?boxed\s{0,3}\{|\\.|[{}]", re.DOTALL)
_WRAPPED = re.compile(r"\s*\\f?boxed\s{0,3}\{")
_FINAL = re.compile(
    r"####|\banswer\s{0,3}(?:\*\*|__)?\s{0,3}(?:is|:|=)\s{0,3}:?",
    re.IGNORECASE,
)


def strip_thinking(text: str) -> str | None:
    """What follows the last closed thinking part; None when one was opened and never closed.

    Example:
        >>> strip_thinking("<think>5? no</think>It is 7."), strip_thinking("<think>5? no")
        ('It is 7.', None)
    """
    marks = list(_THINK.finditer(text))
    if not marks:
        return text
    return text[marks[-1].end() :] if marks[-1].group(1) else None


def boxes(text: str) -> list[str]:
    r"""Contents of every complete \boxed{} that lies in no other, in order; of a box in a box the inner one.

    Example:
        >>> boxes(r"\boxed{5}, no: \boxed{\frac{1}{2}} or \boxed{\boxed{7}} \boxed{8")
        ['5', '\\frac{1}{2}', '7']
    """
    opened: list[int | None] = []  # where a box's content starts, None for a plain brace
    found: list[tuple[int, int]] = []
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token.endswith("{") and token != r"\{":
            opened.append(match.end() if len(token) > 1 else None)
        elif token == "}" and opened and (start := opened.pop()) is not None:
            while found and found[-1][0] > start:
                found.pop()
            found.append((start, match.start()))
    return [_unwrapped(text[start:end]) for start, end in found]


def _unwrapped(content: str) -> str:
    """The content of a box that holds one box and nothing else."""
    while (match := _WRAPPED.match(content)) is not None and content.rstrip().endswith("}"):
        inner = content[match.end() : len(content.rstrip()) - 1]
        if not _balanced(inner):
            break
        content = inner
    return content


def _balanced(text: str) -> bool:
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        depth += (token.endswith("{") and token != r"\{") - (token == "}")
        if depth < 0:
            return False
    return depth == 0


def last_box(text: str) -> str | None:
    """Content of the last complete box, or None."""
    found = boxes(text)
    return found[-1] if found else None


def answer_tag(text: str) -> str | None:
    """Content of the last complete `<answer>` element, or None."""
    lower = text.lower() if len(text.lower()) == len(text) else text
    end = lower.rfind("</answer>")
    start = lower.rfind("<answer>", 0, end) if end >= 0 else -1
    return None if start < 0 else text[start + len("<answer>") : end].strip()


def final_answer(text: str) -> str | None:
    """What the completion calls its answer: the last box, else the last "answer is ..." or "#### ..." line.

    Example:
        >>> final_answer("The answer is **73**.")
        '73'
    """
    box = last_box(text)
    if box is not None:
        return box
    found = list(_FINAL.finditer(text))
    if not found:
        return None
    line = text[found[-1].end() :].lstrip(" \t").split("\n", 1)[0]
    sentence = re.split(r"\.(?:\s|$)", line, maxsplit=1)[0].strip().strip("*_`").strip()
    return re.sub(r"^\$+|\$+$", "", sentence.rstrip(".")).strip("*_` .") or None


def plain_digits(text: str) -> str:
    """Compatibility forms folded, decimal digits of any script and the minus signs in ASCII."""
    if text.isascii():
        return text
    folded = unicodedata.normalize("NFKC", text)
    return "".join(
        str(unicodedata.decimal(character)) if character.isdecimal() else _SIGNS.get(character, character)
        for character in folded
    )


_SIGNS = {
    "\u2212": "-",
    "\u2010": "-",
    "\u2011": "-",
    "\u2012": "-",
    "\u2013": "-",
    "\u2014": "-",
    "\u2044": "/",
}


def unread(attempt: Attempt, detail: str) -> Verdict:
    """Score 0 because no answer could be read; TRUNCATED when the completion was cut off."""
    cut = attempt.stop_reason in (StopReason.LENGTH, StopReason.ABORT)
    return Verdict(
        score=0.0, status=VerdictStatus.TRUNCATED if cut else VerdictStatus.UNPARSEABLE, detail=detail
    )


def shorten(text: str, limit: int = 120) -> str:
    """At most `limit` characters, for the detail of a verdict."""
    return text if len(text) <= limit else text[: limit - 3] + "..."
