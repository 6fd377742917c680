"""Answers nobody would write, made at random but always the same: to hang, crash or fool a verifier."""

import random
from collections.abc import Iterator

# ruff: noqa: E501
ATOMS = [
    "1", "0", "-1", "9", "10", "1/2", "0.5", ".5", "5.", "1,000", "1e9", "x", "y", "n", "i", "e", r"\pi",
    r"\infty", r"\frac{1}{2}", r"\frac12", r"\sqrt{2}", r"\sqrt[3]{x}", r"\binom{5}{2}", "5!", "x^2", "x_1",
    r"\sin x", r"\log_2 8", r"\text{cm}", r"\text{ or }", "90^\\circ", r"50\%", r"\$5", r"\emptyset",
    r"\mathbb{R}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "yes", "A", "\u0664", "\u2212", "\u221e", "",
]  # fmt: skip
JOINS = [
    "+", "-", "*", "/", "^", " ", ",", ";", "=", "<", r"\le ", ">", ":", r"\cup ", r"\pm ", r"\cdot ", "!", "_",
    "|", r"\approx ", r"\in ", "**", "%", "&", r"\\", "'", "\\", "\x00", "\ud800", "\u200b",
]  # fmt: skip
BRACKETS = [
    "()",
    "[]",
    "{}",
    "(]",
    "[)",
    ("\\{", "\\}"),
    ("|", "|"),
    ("\\left(", "\\right)"),
    ("{", ""),
    ("", ")"),
]
BOMBS = [
    "9^{9^{9^{9}}}", "(10^{10^{10}})!", "10^{10^{7}}", r"\binom{10^7}{5\cdot 10^6}", "9**9**9", "e^{e^{e^{e^e}}}",
    "(" * 300 + "1" + ")" * 300, "{" * 300 + "}" * 300, r"\sqrt{" * 60 + "2" + "}" * 60, "9" * 500,
    "-" * 400 + "1", "1" + "!" * 200, "1" + "%" * 300, r"\frac1" * 80 + "1", "x" * 500, "1/" * 200 + "1",
    r"\sin " * 100 + "x", "=".join("1" * 200), ",".join(["1"] * 250), "<".join("x" * 200), r"\text{" * 60,
    r"\sum_{k=1}^{10^9} k", r"\int_0^{10^9} x^{x^x} dx", "0.\\overline{" + "3" * 400 + "}", "1e99999",
    "__import__('os').system('true')", "().__class__.__base__.__subclasses__()", r"\input{/etc/passwd}",
    "(a+b+c+d)^{60}", "(x+y)^{9999}", r"\gcd(10^{9999}, 10^{9998})", "10^{9999}\\cdot 10^{9999}", "0^{0}", "0/0",
]  # fmt: skip


def answers(count: int, seed: int = 0) -> Iterator[str]:
    """So many texts."""
    source = random.Random(seed)
    for _ in range(count):
        kind = source.random()
        if kind < 0.1:
            yield source.choice(BOMBS)
        elif kind < 0.2:
            yield "".join(chr(source.randrange(1, 0x3000)) for _ in range(source.randrange(60)))
        elif kind < 0.25:
            yield _expression(source, 5) + source.choice(BOMBS)
        else:
            yield _expression(source, source.randrange(1, 5))


def _expression(source: random.Random, depth: int) -> str:
    if depth == 0:
        return source.choice(ATOMS)
    parts = [_expression(source, depth - 1) for _ in range(source.randrange(1, 4))]
    text = parts[0] + "".join(source.choice(JOINS) + part for part in parts[1:])
    if source.random() < 0.4:
        opening, closing = source.choice(BRACKETS)
        text = f"{opening}{text}{closing}"
    return text
