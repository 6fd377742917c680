"""Which part of a completion is the program: one documented rule, chosen by name."""

from typing import Literal

from peira.verifiers.answer import strip_thinking

Policy = Literal["last", "first", "only", "whole"]
MAX_CHARACTERS = 200_000


def code_blocks(text: str) -> list[tuple[str, str]]:
    """Every closed fenced block as (label, contents), in order."""
    blocks: list[tuple[str, str]] = []
    fence, label, lines = "", "", list[str]()
    for line in text.split("\n"):
        bare = line.strip()
        if fence and bare.startswith(fence) and not bare.strip(fence[0]):
            blocks.append((label, "\n".join(lines) + "\n"))
            fence = ""
        elif fence:
            lines.append(line)
        elif bare.startswith(("```", "~~~")) and line[:4].lstrip(" ")[:1] == bare[0]:
            rest = bare.lstrip(bare[0])
            if "`" not in rest:
                fence, label, lines = bare[: len(bare) - len(rest)], (rest.split() or [""])[0].lower(), []
    return blocks


def extract_code(text: str, labels: tuple[str, ...], policy: Policy = "last") -> str | None:
    """The program in a completion, or None.

    Thinking is cut off first. A block counts when it bears one of the language's labels or none. `only` wants
    exactly one such block; `whole` takes the text as it stands.

    Example:
        >>> extract_code("Here:\\n```python\\nprint(1)\\n```", ("python",))
        'print(1)\\n'
    """
    answer = strip_thinking(text)
    if answer is None:
        return None
    if policy == "whole":
        found = [answer] if answer.strip() else []
    else:
        found = [code for label, code in code_blocks(answer) if label in labels or not label]
    if not found or (policy == "only" and len(found) != 1):
        return None
    code = found[0] if policy == "first" else found[-1]
    return code if code.strip() and len(code) <= MAX_CHARACTERS else None
