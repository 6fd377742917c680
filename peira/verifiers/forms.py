r"""Answers in normal form: what kind of thing an answer is.

text -> reading.py -> one of: expression (with or without a unit), list, tuple or interval, set, union,
                      equation, inequality, matrix, number in a base, ratio, words
     -> comparing.py: a form equals another only if both are the same kind of thing, up to a few conversions
                      listed at `same`: a set and a tuple never agree, nor a number and a list that has it
"""

from dataclasses import dataclass, field
from typing import Literal

from peira.verifiers.expression import Node, Unreadable
from peira.verifiers.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Questions that a dataset answers one way or the other."""

    log_base: Literal["e", "10"] = "e"
    """What a bare \\log means."""
    percent: Literal["exact", "bare"] = "exact"
    """exact: 28 is not 28%; bare: they are the same answer."""
    significant_digits: int | None = None
    """Accept a decimal that rounds the reference correctly to at least so many digits; None: exact only."""
    unevaluated: Literal["accept", "reject"] = "accept"
    """The reference is a number and the answer a calculation that has its value: 5! or 37 + 58."""
    missing_unit: Literal["accept", "reject"] = "accept"
    """The reference has a unit and the answer has none."""
    unknown_unit: Literal["accept", "reject"] = "reject"
    """The answer has a unit that is in no table (12 apples) and the reference has none."""
    convert_units: bool = True
    """100 cm is 1 m."""
    approximate_tail: Literal["reject", "ignore"] = "reject"
    """What follows an "approximately equal" sign: a reason to reject, or not read."""
    text_case: Literal["ignore", "exact"] = "ignore"
    """Of words; symbols always keep their case."""


DEFAULT_POLICY = Policy()


Kind = Literal[
    "expression",
    "list",
    "tuple",
    "set",
    "union",
    "equation",
    "inequality",
    "matrix",
    "based",
    "ratio",
    "words",
]


@dataclass(frozen=True, slots=True)
class Form:
    """One answer in normal form."""

    kind: Literal[
        "expression",
        "list",
        "tuple",
        "set",
        "union",
        "equation",
        "inequality",
        "matrix",
        "based",
        "ratio",
        "words",
    ]
    items: "tuple[Form, ...]" = ()
    node: Node | None = None
    unit: Unit | None = None
    percent: bool = False
    compound: bool = False
    """Several units added up: 3 hours 20 minutes."""
    text: str = ""
    """Brackets of a tuple, relation signs, digits and base, or the words."""
    decimal_digits: int | None = field(default=None, compare=False)
    """Significant digits, when it was written as one decimal number."""


def node_of(form: Form) -> Node:
    """The expression that a form is.

    Raises:
        Unreadable: it is something else.
    """
    if form.node is None:
        raise Unreadable(f"a {form.kind} where a number was expected")
    return form.node


def is_literal(node: Node) -> bool:
    """A number as it is written down: an integer, decimal, fraction or percentage, with its sign."""
    if node.kind in ("negate", "percent", "divide"):
        return all(is_literal(argument) and argument.kind != "divide" for argument in node.arguments)
    return node.kind == "number"


def head_symbol(form: Form) -> str:
    """Of a lone symbol or f(x), what a value is assigned to, the symbol or the f; else empty."""
    node = form.node
    if node is None or form.unit is not None:
        return ""
    while node.kind == "multiply" and all(part.kind in ("symbol", "multiply") for part in node.arguments):
        node = node.arguments[0]
    return node.name if node.kind == "symbol" else ""


def values(form: Form) -> tuple[Form, ...]:
    """What an equation says the value is: its members, the first left out when it only names the others."""
    head = head_symbol(form.items[0])
    rest = form.items[1:]
    named = head and not any(item.node is not None and head in item.node.symbols() for item in rest)
    return rest if named else form.items


def assigned(form: Form) -> Form | None:
    """The value of `x = 11`; None when the form is no assignment, as `x = 2x` is none."""
    if form.kind != "equation" or len(form.items) != 2 or len(values(form)) != 1:
        return None
    return form.items[1]
