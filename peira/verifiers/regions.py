"""Parts of the line: intervals, unions, inequalities."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from peira.verifiers.evaluation import constant, equal, evaluate, infinite_sign, proportional
from peira.verifiers.expression import Node, Unreadable
from peira.verifiers.forms import Form, Policy, node_of

_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!="}


@dataclass(frozen=True, slots=True)
class _Piece:
    """An interval of one variable; None is infinity on its side."""

    low: Node | None
    high: Node | None
    low_closed: bool
    high_closed: bool


def same_region(reference: Form, given: Form, policy: Policy) -> bool:
    """Whether two intervals, unions or inequalities are the same part of the line or half of a plane."""
    left, right = _pieces_of(reference), _pieces_of(given)
    if left is not None and right is not None:
        if left.variable and right.variable and left.variable != right.variable:
            return False
        first, second = _merged(left.pieces), _merged(right.pieces)
        return len(first) == len(second) and all(
            _same_piece(a, b) for a, b in zip(first, second, strict=True)
        )
    if reference.kind == given.kind == "inequality":
        return _same_half_space(reference, given)
    return False


def _merged(pieces: Sequence[_Piece]) -> list[_Piece]:
    """In order, and without pieces that overlap or touch."""
    if len(pieces) == 1:
        return list(pieces)
    merged: list[_Piece] = []
    for piece in sorted(pieces, key=_low):
        if merged and _reaches(merged[-1], piece):
            last = merged[-1]
            further = piece if _high(piece) > _high(last) else last
            closed = further.high_closed or (_high(piece) == _high(last) and piece.high_closed)
            both = _high(piece) == _high(last) and (piece.high_closed or last.high_closed)
            merged[-1] = _Piece(
                last.low, further.high, last.low_closed or _closes(last, piece), closed or both
            )
        else:
            merged.append(piece)
    return merged


def _low(piece: _Piece) -> float | Fraction:
    return -math.inf if piece.low is None else _position(piece.low)


def _high(piece: _Piece) -> float | Fraction:
    return math.inf if piece.high is None else _position(piece.high)


def _position(node: Node) -> float | Fraction:
    """For ordering; equality is decided by `equal`."""
    if node.symbols():
        raise Unreadable("an interval with a variable end")
    value = constant(node)
    return float(evaluate(node, 30).real) if value is None else value


def _reaches(first: _Piece, second: _Piece) -> bool:
    if _low(second) == _high(first):
        return first.high_closed or second.low_closed
    return _low(second) < _high(first)


def _closes(first: _Piece, second: _Piece) -> bool:
    return _low(first) == _low(second) and second.low_closed


@dataclass(frozen=True, slots=True)
class _Region:
    pieces: tuple[_Piece, ...]
    variable: str = ""


def _pieces_of(form: Form) -> _Region | None:
    if form.kind == "tuple" and len(form.items) == 2:
        nodes = [item.node for item in form.items]
        return _interval(nodes[0], nodes[1], form.text[0] == "[", form.text[1] == "]")
    if form.kind == "union":
        regions = [_pieces_of(item) for item in form.items]
        if any(region is None for region in regions):
            return None
        return _Region(tuple(piece for region in regions if region for piece in region.pieces))
    if form.kind == "set":
        points = [item.node for item in form.items]
        if all(point is not None for point in points):
            return _Region(tuple(_Piece(point, point, True, True) for point in points))
    if form.kind == "inequality":
        return _solved(form)
    return None


def _interval(
    low: Node | None, high: Node | None, low_closed: bool, high_closed: bool, variable: str = ""
) -> _Region | None:
    """Between two ends, of which the lower may be minus and the upper plus infinity."""
    if low is None or high is None:
        return None
    signs = infinite_sign(low), infinite_sign(high)
    if "infinity" in low.kinds() | high.kinds() and signs not in ((-1, 0), (0, 1), (-1, 1)):
        return None
    ends = (None if signs[0] else low), (None if signs[1] else high)
    return _Region((_Piece(ends[0], ends[1], low_closed, high_closed),), variable)


def _solved(form: Form) -> _Region | None:
    """An inequality whose middle or side is one variable, alone or within bars."""
    nodes = [item.node for item in form.items]
    signs = form.text.split()
    if any(node is None for node in nodes):
        return None
    if len(nodes) == 2:
        left, right = nodes
        assert left is not None
        assert right is not None
        if right.symbols() and not left.symbols():
            left, right = right, left
            signs = [_TURNED[signs[0]]]
        if right.symbols():
            return None
        if signs[0] == "!=":
            if left.kind != "symbol":
                return None
            pieces = (_Piece(None, right, False, False), _Piece(right, None, False, False))
            return _Region(pieces, left.name)
        closed = "=" in signs[0]
        below = signs[0].startswith("<")
        if left.kind == "symbol":
            if below:
                return _Region((_Piece(None, right, False, closed),), left.name)
            return _Region((_Piece(right, None, closed, False),), left.name)
        if left.kind == "abs":
            return _within_bars(left.arguments[0], right, below=below, closed=closed)
        return None
    if len(nodes) == 3 and len({sign[0] for sign in signs}) == 1:
        low, middle, high = nodes
        first, second = ("=" in sign for sign in signs)
        if signs[0][0] == ">":
            low, high, first, second = high, low, second, first
        if middle is not None and middle.kind == "symbol":
            return _interval(low, high, first, second, middle.name)
    return None


def _within_bars(inner: Node, bound: Node, *, below: bool, closed: bool) -> _Region | None:
    """|x - a| < b and its kin."""
    centre: Node
    if inner.kind == "symbol":
        name, centre = inner.name, _literal(Fraction(0))
    elif inner.kind == "add" and inner.arguments[0].kind == "symbol" and len(inner.arguments) == 2:
        name, centre = inner.arguments[0].name, Node("negate", (inner.arguments[1],))
    else:
        return None
    size = constant(bound)
    if size is None or size <= 0 or centre.symbols():
        return None
    low = Node("add", (centre, Node("negate", (bound,))))
    high = Node("add", (centre, bound))
    if below:
        return _Region((_Piece(low, high, closed, closed),), name)
    return _Region((_Piece(None, low, False, closed), _Piece(high, None, closed, False)), name)


def _same_piece(left: _Piece, right: _Piece) -> bool:
    def same_end(first: Node | None, second: Node | None) -> bool:
        if first is None or second is None:
            return first is second
        return equal(first, second)

    closed = (left.low_closed, left.high_closed) == (right.low_closed, right.high_closed)
    return closed and same_end(left.low, right.low) and same_end(left.high, right.high)


def _same_half_space(reference: Form, given: Form) -> bool:
    """2x + 3y < 6 and -4x > 6y - 12: the same up to a constant of the right sign."""
    if len(reference.items) != 2 or len(given.items) != 2:
        return False
    sign = proportional(difference(*reference.items), difference(*given.items))
    if sign is None:
        return False
    first, second = reference.text, given.text
    turned = _TURNED[second] if sign < 0 else second
    return first == turned


def difference(left: Form, right: Form) -> Node:
    """left - right."""
    return Node("add", (node_of(left), Node("negate", (node_of(right),))))


def _literal(value: Fraction) -> Node:
    return Node("number", value=value)
