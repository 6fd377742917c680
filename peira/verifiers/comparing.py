"""When two answers are the same."""

import re
from collections.abc import Callable, Sequence

from peira.verifiers.evaluation import constant, equal, evaluate, proportional
from peira.verifiers.expression import Node, Unreadable
from peira.verifiers.forms import (
    DEFAULT_POLICY,
    Form,
    Policy,
    assigned,
    head_symbol,
    is_literal,
    node_of,
    values,
)
from peira.verifiers.regions import difference, same_region


def same(reference: Form, given: Form, policy: Policy = DEFAULT_POLICY) -> bool:
    """Whether an answer is the reference.

    Conversions: an assignment `x = 11` is its value; a chain of equations is right when every member is; a
    list and a set are one if they hold the same things; an interval is the inequality that describes it; a
    unit may be left out, and what the reference leaves out may be given.

    Raises:
        Unreadable: a value is undefined, or too large to evaluate.
    """
    if reference.kind == "equation" or given.kind == "equation":
        return _same_equation(reference, given, policy)
    kinds = (reference.kind, given.kind)
    if kinds == ("expression", "expression"):
        return _same_value(reference, given, policy)
    if set(kinds) <= {"list", "set"}:
        return _same_members(reference.items, given.items, policy)
    if "inequality" in kinds or "union" in kinds:
        return same_region(reference, given, policy)
    if set(kinds) == {"words", "expression"}:
        return _same_product(reference, given, policy)
    if kinds[0] != kinds[1]:
        return False
    match reference.kind:
        case "words":
            return _spoken(reference.text, policy) == _spoken(given.text, policy)
        case "based":
            return reference.text == given.text
        case "tuple" | "matrix" | "ratio":
            return (
                reference.text == given.text
                and len(reference.items) == len(given.items)
                and all(same(a, b, policy) for a, b in zip(reference.items, given.items, strict=True))
            )
    return False


def _same_product(reference: Form, given: Form, policy: Policy) -> bool:
    r"""`ab` looks like a word; beside `b \cdot a` it is a product of symbols."""
    word, other = (reference, given) if reference.kind == "words" else (given, reference)
    if len(word.text) > 3 or not word.text.isalpha() or not word.text.islower() or other.unit is not None:
        return False
    product = Node("multiply", tuple(Node("symbol", name=letter) for letter in word.text[:2]))
    for letter in word.text[2:]:
        product = Node("multiply", (product, Node("symbol", name=letter)))
    return node_of(other).kind == "multiply" and equal(product, node_of(other))


def _spoken(text: str, policy: Policy) -> str:
    text = text.casefold() if policy.text_case == "ignore" else text
    return re.sub(r"[\s'.,\-]+", " ", text).strip()


_MULTIPLIERS = {
    "hundred", "hundreds", "thousand", "thousands", "million", "millions", "billion", "trillion", "dozen",
    "score", "half", "halves", "third", "thirds", "quarter", "quarters", "percent", "squared", "cubed", "st",
    "nd", "rd", "th", "or", "and", "not", "factorial", "negative", "minus", "times", "pair",
    "pairs", "k", "m", "bn", "mod",
}  # fmt: skip


def _same_value(reference: Form, given: Form, policy: Policy) -> bool:
    left, right = node_of(reference), node_of(given)
    if policy.unevaluated == "reject" and is_literal(left) and not (is_literal(right) or given.compound):
        return False
    if reference.unit is None and given.unit is not None:
        named = given.unit.dimension.startswith("named ")
        refused = named and (policy.unknown_unit == "reject" or given.unit.name in _MULTIPLIERS)
        if given.compound or refused:
            return False
    if reference.unit is not None and given.unit is None:
        if policy.missing_unit == "reject":
            return False
    elif reference.unit is not None and given.unit is not None and reference.unit != given.unit:
        if reference.unit.dimension != given.unit.dimension or not policy.convert_units:
            return False
        factor = given.unit.factor / reference.unit.factor
        right = Node("multiply", (right, Node("number", value=factor)))
    if equal(left, right):
        return True
    if policy.percent == "bare" and reference.percent != given.percent:
        scaled = Node("percent", (right,)) if reference.percent else Node("percent", (left,))
        if equal(left if reference.percent else scaled, scaled if reference.percent else right):
            return True
    return _rounds(left, given, policy)


def _rounds(reference: Node, given: Form, policy: Policy) -> bool:
    """Whether the answer is a decimal that rounds the reference correctly to enough digits."""
    digits = given.decimal_digits
    if policy.significant_digits is None or digits is None or digits < policy.significant_digits:
        return False
    value = constant(node_of(given))
    if value is None or reference.symbols():
        return False
    import mpmath

    exact = evaluate(reference, digits + 15)
    step = mpmath.mpf(10) ** (mpmath.floor(mpmath.log10(abs(value))) + 1 - digits) if value else mpmath.mpf(0)
    return bool(abs(exact - mpmath.mpf(value.numerator) / value.denominator) <= step / 2)


def _same_members(reference: Sequence[Form], given: Sequence[Form], policy: Policy) -> bool:
    """As sets: the order and repetitions do not count."""
    if [item.kind for item in reference].count("equation") != [item.kind for item in given].count("equation"):
        return False  # `x = 1, y = 2` says more than `1, 2`
    left, right = _distinct(reference, policy), _distinct(given, policy)
    if len(left) != len(right):
        return False
    rest = list(right)
    for item in left:
        found = next((other for other in rest if _quietly(same, item, other, policy)), None)
        if found is None:
            return False
        rest.remove(found)
    return True


def _distinct(items: Sequence[Form], policy: Policy) -> list[Form]:
    kept: list[Form] = []
    for item in items:
        if not any(_quietly(same, other, item, policy) for other in kept):
            kept.append(item)
    return kept


def _quietly(compare: Callable[[Form, Form, Policy], bool], left: Form, right: Form, policy: Policy) -> bool:
    """Two members that cannot be compared are two members."""
    try:
        return compare(left, right, policy)
    except Unreadable:
        return False


def _same_equation(reference: Form, given: Form, policy: Policy) -> bool:
    if reference.kind != "equation":
        members = given.items if head_symbol(reference) else values(given)
        return all(same(reference, member, policy) for member in members)
    value = assigned(reference)
    if given.kind != "equation":
        return value is not None and same(value, given, policy)
    if len(reference.items) != 2 or len(given.items) != 2:
        return len(reference.items) == len(given.items) and all(
            same(a, b, policy) for a, b in zip(reference.items, given.items, strict=True)
        )
    if any(item.kind != "expression" for item in (*reference.items, *given.items)):
        return all(same(a, b, policy) for a, b in zip(reference.items, given.items, strict=True))
    return proportional(difference(*reference.items), difference(*given.items)) is not None
