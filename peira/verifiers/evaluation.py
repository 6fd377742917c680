"""Values of expressions, and equality decided by evaluation.

Sizes are limited before anything is computed. Two expressions are equal when they agree at random rational
points: exactly, as fractions, where they are rational, and otherwise to far more digits than any quantity in
them is large or small.

Source: Schwartz 1980, "Fast probabilistic algorithms for verification of polynomial identities", for the
    principle of testing identities at random points.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

from peira.verifiers.expression import Node, Unreadable

MAX_EXPONENT = 10_000
MAX_FACTORIAL = 3_000
MAX_BITS = 400_000
MAX_MAGNITUDE = 12_000
"""Powers of ten that a number may be away from 1."""


@cache
def _context() -> Any:
    """A context of our own: the precision of the process-wide one is left alone."""
    import mpmath

    return mpmath.MPContext()


class _Evaluation:
    """Evaluates trees at one point and one precision, and notes how far from 1 any quantity got."""

    def __init__(self, point: Mapping[str, Fraction], digits: int) -> None:
        self.point = point
        self.context = _context()
        self.context.dps = digits
        self.magnitude = 0.0

    def value(self, node: Node) -> Any:
        """A Fraction where the value is rational by construction, else a number of mpmath."""
        result = self._apply(node)
        if isinstance(result, Fraction):
            if result:
                self._note((result.numerator.bit_length() - result.denominator.bit_length()) * 0.30103)
                self._note(result.denominator.bit_length() * 0.30103)
        else:
            if not self.context.isfinite(result):
                raise Unreadable("it is not finite")
            size = abs(result)
            if size:
                self._note(float(self.context.mag(size)) * 0.30103)
        return result

    def number(self, value: Any) -> Any:
        """As a number of mpmath."""
        if isinstance(value, Fraction):
            return self.context.mpf(value.numerator) / value.denominator
        return value

    def _note(self, power_of_ten: float) -> None:
        self.magnitude = max(self.magnitude, abs(power_of_ten))
        if self.magnitude > MAX_MAGNITUDE:
            raise Unreadable("a number too large or too small to evaluate")

    def _apply(self, node: Node) -> Any:
        kind = node.kind
        if kind == "number":
            return node.value
        if kind == "symbol":
            return self.point[node.name]
        if kind == "pi":
            return +self.context.pi
        if kind == "e":
            return +self.context.e
        if kind == "i":
            return self.context.j
        if kind == "infinity":
            raise Unreadable("infinity is not a number")
        arguments = [self.value(argument) for argument in node.arguments]
        exact = all(isinstance(argument, Fraction) for argument in arguments)
        if kind == "power":
            return self._power(*arguments)
        if kind == "root":
            return self._root(*arguments)
        if kind == "factorial":
            return self._factorial(arguments[0])
        if kind == "binomial":
            return self._binomial(*arguments)
        if not exact and kind in _ARITHMETIC:
            arguments = [self.number(argument) for argument in arguments]
        if kind in _ARITHMETIC:
            return self._bounded(_ARITHMETIC[kind](self, arguments))
        if kind in ("floor", "ceil", "gcd", "lcm", "max", "min"):
            return self._discrete(kind, arguments)
        return self._function(kind, self.number(arguments[0]))

    def _bounded(self, value: Any) -> Any:
        if (
            isinstance(value, Fraction)
            and value.numerator.bit_length() + value.denominator.bit_length() > MAX_BITS
        ):
            raise Unreadable("a fraction with too many digits")
        return value

    def _inverse(self, value: Any) -> Any:
        if not value:
            raise Unreadable("a division by zero")
        return 1 / value

    def _power(self, base: Any, exponent: Any) -> Any:
        if isinstance(exponent, Fraction) and isinstance(base, Fraction):
            if abs(exponent) > MAX_EXPONENT:
                raise Unreadable(f"an exponent above {MAX_EXPONENT}")
            if not base:
                if exponent <= 0:
                    raise Unreadable("zero to the power of zero or less")
                return Fraction(0)
            size = max(base.numerator.bit_length(), base.denominator.bit_length())
            if size * abs(exponent) > MAX_BITS:
                raise Unreadable("a power with too many digits")
            root = base if exponent.denominator == 1 else _exact_root(base, exponent.denominator)
            if root is not None:
                return root**exponent.numerator
        base, exponent = self.number(base), self.number(exponent)
        if not base:
            if self.context.re(exponent) <= 0:
                raise Unreadable("zero to the power of zero or less")
            return self.context.mpf(0)
        if abs(exponent) * abs(self.context.log(abs(base))) > 2.4 * MAX_MAGNITUDE:
            raise Unreadable("a power too large or too small to evaluate")
        return self.context.power(base, exponent)

    def _root(self, base: Any, degree: Any) -> Any:
        """Of odd degree also of negative numbers: the real root."""
        odd = isinstance(degree, Fraction) and degree.denominator == 1 and degree.numerator % 2 == 1
        if odd and not isinstance(base, self.context.mpc) and base < 0:
            return -self._power(-base, 1 / degree)
        return self._power(base, self._inverse(degree))

    def _factorial(self, value: Any) -> Any:
        if abs(value) > MAX_FACTORIAL:
            raise Unreadable(f"a factorial above {MAX_FACTORIAL}")
        if isinstance(value, Fraction) and value.denominator == 1:
            if value < 0:
                raise Unreadable("the factorial of a negative number")
            return Fraction(math.factorial(value.numerator))
        return self.context.gamma(self.number(value) + 1)

    def _binomial(self, top: Any, bottom: Any) -> Any:
        if abs(top) > MAX_FACTORIAL or abs(bottom) > MAX_FACTORIAL:
            raise Unreadable(f"a binomial above {MAX_FACTORIAL}")
        whole = (
            isinstance(top, Fraction)
            and isinstance(bottom, Fraction)
            and top.denominator == bottom.denominator == 1
        )
        if whole and top >= 0 and bottom >= 0:
            return Fraction(math.comb(top.numerator, bottom.numerator))
        return self.context.binomial(self.number(top), self.number(bottom))

    def _discrete(self, kind: str, arguments: list[Any]) -> Any:
        if not all(isinstance(argument, Fraction) for argument in arguments):
            if kind not in ("floor", "ceil"):
                raise Unreadable(f"{kind} of irrational numbers")
            value = self.number(arguments[0])
            return Fraction(int(self.context.floor(value) if kind == "floor" else self.context.ceil(value)))
        if kind in ("gcd", "lcm"):
            if any(argument.denominator != 1 for argument in arguments):
                raise Unreadable(f"{kind} of fractions")
            whole = [argument.numerator for argument in arguments]
            return Fraction(math.gcd(*whole) if kind == "gcd" else math.lcm(*whole))
        if kind in ("max", "min"):
            return max(arguments) if kind == "max" else min(arguments)
        return Fraction(math.floor(arguments[0]) if kind == "floor" else math.ceil(arguments[0]))

    def _function(self, kind: str, value: Any) -> Any:
        name = {"arcsin": "asin", "arccos": "acos", "arctan": "atan"}.get(kind, kind)
        if kind in ("exp", "sinh", "cosh", "tanh") and abs(value) > 2.4 * MAX_MAGNITUDE:
            raise Unreadable(f"{kind} of a number too large")
        if kind in ("sin", "cos", "tan", "cot", "sec", "csc") and abs(value) > 10**6:
            raise Unreadable(f"{kind} of a number too large")
        if kind == "ln" and not value:
            raise Unreadable("the logarithm of zero")
        try:
            return getattr(self.context, name)(value)
        except ZeroDivisionError as error:
            raise Unreadable(f"{kind} is undefined there") from error


def _bits(value: Fraction) -> int:
    return value.numerator.bit_length() + value.denominator.bit_length()


def _divide(evaluation: _Evaluation, arguments: list[Any]) -> Any:
    if not arguments[1]:
        raise Unreadable("a division by zero")
    return arguments[0] / arguments[1]


def _product(_: _Evaluation, arguments: list[Any]) -> Any:
    return arguments[0] * arguments[1]


_ARITHMETIC: Mapping[str, Callable[[_Evaluation, list[Any]], Any]] = {
    "add": lambda _, arguments: sum(arguments[1:], arguments[0]),
    "negate": lambda _, arguments: -arguments[0],
    "multiply": _product,
    "divide": _divide,
    "percent": lambda _, arguments: arguments[0] / 100,
    "abs": lambda _, arguments: abs(arguments[0]),
    "degrees": lambda evaluation, arguments: evaluation.number(arguments[0]) * evaluation.context.pi / 180,
}


def _exact_root(base: Fraction, degree: int) -> Fraction | None:
    """The positive rational root, if there is one."""
    if base < 0 or degree > 64:
        return None
    top, bottom = _integer_root(base.numerator, degree), _integer_root(base.denominator, degree)
    return None if top is None or bottom is None else Fraction(top, bottom)


def _integer_root(value: int, degree: int) -> int | None:
    if degree == 2:
        root = math.isqrt(value)
        return root if root * root == value else None
    low, high = 0, 1 << (value.bit_length() // degree + 1)
    while low < high:
        middle = (low + high) // 2
        if middle**degree < value:
            low = middle + 1
        else:
            high = middle
    return low if low**degree == value else None


DIGITS = 100
"""How many digits further than any quantity is large or small two values must agree."""
NUM_POINTS = 6


def constant(node: Node) -> Fraction | None:
    """The exact value of a tree without symbols, when it is rational by construction."""
    if node.symbols():
        return None
    try:
        value = _Evaluation({}, 30).value(node)
    except (Unreadable, ArithmeticError):
        return None
    return value if isinstance(value, Fraction) else None


def evaluate(node: Node, digits: int) -> Any:
    """The value of a tree without symbols as a number of mpmath.

    Raises:
        Unreadable: it is undefined, or above a limit.
    """
    evaluation = _Evaluation({}, digits)
    return evaluation.number(evaluation.value(node))


def equal(left: Node, right: Node) -> bool:
    r"""Whether two expressions have the same value wherever both are defined and real.

    At least three of the random points must be such points; expressions that are real nowhere are compared as
    complex numbers. What holds on part of the reals only (sqrt(x^2) and x) is no equality; what a domain
    excludes (x = 1 in (x^2-1)/(x-1), negative x in a logarithm) does not count against one.

    Raises:
        Unreadable: one of them is undefined everywhere, or above a limit.
    """
    kinds = left.kinds() | right.kinds()
    if "infinity" in kinds:
        return infinite_sign(left) == infinite_sign(right) != 0
    if not left.symbols() | right.symbols():
        return _agree(left, right, {})[0]
    num_real = num_complex = num_outside = 0
    problem: Unreadable | None = None
    for point in _points(left, right):
        try:
            same, real = _agree(left, right, point)
        except Unreadable as error:
            problem = error
            continue
        if not same and (real or "i" in kinds):
            return False
        num_real += real
        num_complex += not real and same
        num_outside += not same
    if num_real >= 3 or (num_outside == 0 and num_real + num_complex >= 3):
        return True
    if num_outside:
        return False
    raise problem or Unreadable("it is defined at too few points")


def infinite_sign(node: Node) -> int:
    """1 or -1 for infinity alone or with a sign, else 0."""
    if node.kind == "infinity":
        return 1
    return -1 if node.kind == "negate" and node.arguments[0].kind == "infinity" else 0


def _agree(left: Node, right: Node, point: Mapping[str, Fraction]) -> tuple[bool, bool]:
    """Whether the values are the same, and whether both are real."""
    first, second, magnitude = _values(left, right, point, 40)
    if isinstance(first, Fraction) and isinstance(second, Fraction):
        return first == second, True
    digits = DIGITS + int(3 * magnitude)
    first, second, _ = _values(left, right, point, digits)
    context = _context()
    tiny = context.mpf(10) ** -int(DIGITS - 20 + magnitude)
    real = all(abs(context.im(value)) < tiny for value in (first, second))
    return bool(abs(first - second) < tiny), real


def _values(left: Node, right: Node, point: Mapping[str, Fraction], digits: int) -> tuple[Any, Any, float]:
    evaluation = _Evaluation(point, digits)
    try:
        first, second = evaluation.value(left), evaluation.value(right)
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable(f"it cannot be evaluated ({type(error).__name__})") from error
    if not (isinstance(first, Fraction) and isinstance(second, Fraction)):
        first, second = evaluation.number(first), evaluation.number(second)
    return first, second, evaluation.magnitude


def proportional(left: Node, right: Node) -> int | None:
    """The sign of left/right when that is one non-zero constant at all points, else None.

    Raises:
        Unreadable: as `equal`.
    """
    zero = Node("number", value=Fraction(0))
    ratio: Node | None = None
    agreeing = 0
    for point in _points(left, right):
        first, second = substitute(left, point), substitute(right, point)
        try:
            zeros = [_agree(side, zero, {})[0] for side in (first, second)]
            if all(zeros):
                continue
            if any(zeros):
                return None
            here = Node("divide", (first, second))
            ratio = ratio or here
            same, real = _agree(here, ratio, {})
            if not same:
                return None
            agreeing += real
        except Unreadable:
            continue
    if ratio is None or agreeing < 3:
        raise Unreadable("it is defined at too few points")
    evaluation = _Evaluation({}, 40)
    return 1 if evaluation.number(evaluation.value(ratio)) > 0 else -1


def substitute(node: Node, point: Mapping[str, Fraction]) -> Node:
    """The tree with numbers for its symbols."""
    if node.kind == "symbol":
        return Node("number", value=point[node.name])
    if not node.arguments:
        return node
    return Node(node.kind, tuple(substitute(argument, point) for argument in node.arguments), name=node.name)


def _points(left: Node, right: Node) -> Iterator[dict[str, Fraction]]:
    """Rational points of moderate size, half of them of either sign.

    They follow from the two expressions, so they are the same in every process, and nobody can write an
    expression that vanishes at the points it will be tried at.
    """
    symbols = sorted(left.symbols() | right.symbols())
    source = random.Random(f"{left!r} {right!r}")
    for index in range(2 * NUM_POINTS):
        signs = (1,) if index % 2 == 0 else (1, -1)
        yield {
            symbol: source.choice(signs) * Fraction(source.randint(10_007, 300_007), 100_003)
            for symbol in symbols
        }
