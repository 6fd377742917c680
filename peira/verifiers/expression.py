r"""Mathematical expressions: a closed grammar, a tree, and equality decided by evaluation.

Text is read by a grammar of our own, so nothing a policy writes is ever executed. Sizes are limited before
anything is computed. Two expressions are equal when they agree at random rational points: exactly, as
fractions, where they are rational, and otherwise to far more digits than any quantity in them is large or
small.

Source: Schwartz 1980, "Fast probabilistic algorithms for verification of polynomial identities", for the
    principle of testing identities at random points.
"""

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

MAX_CHARACTERS = 512
MAX_NESTING = 32
MAX_EXPONENT = 10_000
MAX_FACTORIAL = 3_000
MAX_BITS = 400_000
MAX_MAGNITUDE = 12_000
"""Powers of ten that a number may be away from 1."""


class Unreadable(ValueError):
    """The text is not an expression of this grammar, is undefined, or is too large to evaluate."""


@dataclass(frozen=True, slots=True)
class Node:
    """One operation and what it applies to."""

    kind: str
    arguments: "tuple[Node, ...]" = ()
    value: Fraction | None = None
    name: str = ""

    def symbols(self) -> frozenset[str]:
        """Names of the variables in it."""
        if self.kind == "symbol":
            return frozenset({self.name})
        return frozenset().union(*(argument.symbols() for argument in self.arguments))

    def kinds(self) -> frozenset[str]:
        """Every kind of operation in it."""
        return frozenset({self.kind}).union(*(argument.kinds() for argument in self.arguments))


# ---------------------------------------------------------------------------------------------- reading

_TOKEN = re.compile(
    r"(?P<number>\d+(?:\.\d*)?|\.\d+)|(?P<command>\\[A-Za-z]+|\\.)|(?P<word>[A-Za-z]+)|(?P<other>\S)"
)
_IGNORED = {
    r"\left", r"\right", r"\big", r"\Big", r"\bigl", r"\bigr", r"\Bigl", r"\Bigr", r"\displaystyle",
    r"\textstyle", r"\,", r"\;", r"\:", r"\!", r"\ ", r"\quad", r"\qquad", "~", r"\limits", "$",
}  # fmt: skip
_WRAPPERS = {
    r"\mathrm", r"\mathbf", r"\mathit", r"\boldsymbol", r"\bm", r"\text", r"\textbf", r"\textit", r"\textrm",
    r"\mathsf", r"\rm", r"\bf", r"\mathcal", r"\operatorname", r"\mbox",
}  # fmt: skip
_GREEK = {
    "alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta", "iota",
    "kappa", "lambda", "mu", "nu", "xi", "rho", "sigma", "tau", "upsilon", "phi", "varphi", "chi", "psi", 
    "omega", "Gamma", "Delta", "Theta", "Lambda", "Xi", "Sigma", "Phi", "Psi", "Omega", "ell", "hbar",
}  # fmt: skip
_FUNCTIONS = {
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "ln",
    "log", "lg", "exp", "asin", "acos", "atan",
}  # fmt: skip
_BUILT = {"frac", "dfrac", "tfrac", "cfrac", "sqrt", "binom", "dbinom", "pi", "infty"}
_CALLS = {"sqrt", "abs", "floor", "ceil", "max", "min", "gcd", "lcm", "factorial"}
_TIMES = {r"\cdot", r"\times", "*", r"\ast", "\u00d7", "\u00b7"}
_OVER = {"/", r"\div", "\u00f7"}
_OPEN = {"(": ")", "[": "]", r"\{": r"\}", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil", r"\lvert": r"\rvert"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


def read_expression(text: str) -> Node:
    r"""The tree of a LaTeX or plain expression.

    Raises:
        Unreadable: outside the grammar, or above a limit.

    Example:
        >>> read_expression(r"2\sqrt{2}").kind
        'multiply'
    """
    if len(text) > MAX_CHARACTERS:
        raise Unreadable(f"an answer of {len(text)} characters")
    parser = _Parser(_tokens(text))
    node = parser.sum()
    if parser.more():
        raise Unreadable(f"{parser.peek()!r} cannot be read here")
    return node


def _tokens(text: str) -> list[_Token]:
    found = []
    depth = 0
    for match in _TOKEN.finditer(text):
        kind = str(match.lastgroup)
        token = match.group()
        if token in _IGNORED:
            continue
        depth += (token in _OPEN or token == "{") - (token in _OPEN.values() or token == "}")
        if depth > MAX_NESTING:
            raise Unreadable(f"more than {MAX_NESTING} levels of nesting")
        found.append(_Token(kind, token))
    return found


class _Parser:
    """Recursive descent: sum > product > power > primary. Depth is bounded by the nesting limit."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self.tokens = list(tokens)
        self.at = 0
        self.bars = 0
        self.depth = 0

    def more(self) -> bool:
        return self.at < len(self.tokens)

    def peek(self, ahead: int = 0) -> str:
        index = self.at + ahead
        return self.tokens[index].text if index < len(self.tokens) else ""

    def take(self) -> _Token:
        if not self.more():
            raise Unreadable("it ends too early")
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, text: str) -> None:
        if self.peek() != text:
            raise Unreadable(f"expected {text!r}, found {self.peek()!r}")
        self.at += 1

    def sum(self) -> Node:
        self.depth += 1
        if self.depth > 2 * MAX_NESTING:
            raise Unreadable("too many levels")
        terms = [self.product()]
        while self.peek() in ("+", "-"):
            sign = self.take().text
            term = self.product()
            terms.append(_negative(term) if sign == "-" else term)
        self.depth -= 1
        return terms[0] if len(terms) == 1 else Node("add", tuple(terms))

    def product(self) -> Node:
        negative = False
        while self.peek() in ("+", "-"):
            negative ^= self.take().text == "-"
        node = self.power()
        while True:
            if self.peek() in _TIMES:
                self.take()
                node = Node("multiply", (node, self.signed_power()))
            elif self.peek() in _OVER:
                self.take()
                node = Node("divide", (node, self.signed_power()))
            elif self.starts_factor():
                if self.tokens[self.at].kind == "number" and self.tokens[self.at - 1].kind == "number":
                    raise Unreadable("two numbers side by side")
                node = Node("multiply", (node, self.power()))
            else:
                return _negative(node) if negative else node

    def signed_power(self) -> Node:
        if self.peek() in ("+", "-"):
            sign = self.take().text
            node = self.power()
            return _negative(node) if sign == "-" else node
        return self.power()

    def starts_factor(self) -> bool:
        if not self.more():
            return False
        token = self.tokens[self.at]
        if token.kind in ("number", "word"):
            return True
        if token.text == "|":
            return self.bars == 0
        if token.text in _OPEN or token.text == "{":
            return token.text != "["
        return token.kind == "command" and (
            token.text
            in (r"\frac", r"\dfrac", r"\tfrac", r"\cfrac", r"\sqrt", r"\binom", r"\dbinom", r"\pi", r"\infty")
            or token.text in _WRAPPERS
            or token.text[1:] in _GREEK | _FUNCTIONS
        )

    def power(self) -> Node:
        base = self.postfix(self.primary())
        if self.peek() not in ("^", "**"):
            return base
        self.take()
        if self.peek() == "*":  # the second star of **
            self.take()
        if self.peek() in (r"\circ", "\u00b0") or (self.peek() == "{" and self.peek(1) == r"\circ"):
            self.degree_mark()
            return self.again(Node("degrees", (base,)))
        exponent = self.argument(signed=True)
        return self.again(Node("power", (base, exponent)))

    def again(self, node: Node) -> Node:
        node = self.postfix(node)
        if self.peek() == "^":
            raise Unreadable("a power of a power without parentheses")
        return node

    def degree_mark(self) -> None:
        braced = self.peek() == "{"
        if braced:
            self.take()
        self.take()
        if braced:
            self.expect("}")

    def postfix(self, node: Node) -> Node:
        while self.peek() in ("!", "%", r"\%", "\u00b0", r"\degree"):
            mark = self.take().text
            if mark == "!" and self.peek() == "!":
                raise Unreadable("a double factorial")
            kind = {"!": "factorial", "%": "percent", r"\%": "percent"}.get(mark, "degrees")
            node = Node(kind, (node,))
        return node

    def argument(self, *, signed: bool = False) -> Node:
        """A braced group, or a single token, as LaTeX takes them."""
        if self.peek() == "{":
            self.take()
            node = self.sum()
            self.expect("}")
            return node
        if signed and self.peek() in ("+", "-"):
            sign = self.take().text
            node = self.argument()
            return _negative(node) if sign == "-" else node
        token = self.tokens[self.at] if self.more() else _Token("end", "")
        if token.kind == "number" and len(token.text) > 1 and not signed:
            self.tokens[self.at : self.at + 1] = [
                _Token("number", token.text[0]),
                _Token("number", token.text[1:]),
            ]
            self.take()
            return _number(token.text[0])
        if token.kind == "word" and len(token.text) > 1 and token.text not in ("pi",):
            self.tokens[self.at : self.at + 1] = [
                _Token("word", token.text[0]),
                _Token("word", token.text[1:]),
            ]
        return self.primary()

    def split(self, token: _Token) -> None:
        """Of a run of digits or letters, LaTeX takes the first as an argument."""
        halves = [_Token(token.kind, token.text[0]), _Token(token.kind, token.text[1:])]
        self.tokens[self.at : self.at + 1] = halves

    def primary(self) -> Node:
        token = self.take()
        text = token.text
        if token.kind == "number":
            return _number(text)
        if token.kind == "word":
            return self.letters(text)
        if text in ("(", "[", "{", r"\{"):
            node = self.sum()
            self.expect({"{": "}"}.get(text) or _OPEN[text])
            return node
        if text in (r"\lfloor", r"\lceil", r"\lvert"):
            node = self.sum()
            self.expect(_OPEN[text])
            return Node({r"\lfloor": "floor", r"\lceil": "ceil", r"\lvert": "abs"}[text], (node,))
        if text == "|":
            self.bars += 1
            node = self.sum()
            self.bars -= 1
            self.expect("|")
            return Node("abs", (node,))
        if text == "\u221e":
            return Node("infinity")
        if text == "\u03c0":
            return Node("pi")
        if text == "\u221a":
            return Node("root", (self.argument(), _number("2")))
        if token.kind == "command":
            return self.command(text)
        raise Unreadable(f"{text!r} cannot be read here")

    def command(self, text: str) -> Node:
        name = text[1:]
        if name in ("frac", "dfrac", "tfrac", "cfrac"):
            top = self.argument()
            return Node("divide", (top, self.argument()))
        if name in ("binom", "dbinom"):
            top = self.argument()
            return Node("binomial", (top, self.argument()))
        if name == "sqrt":
            degree = _number("2")
            if self.peek() == "[":
                self.take()
                degree = self.sum()
                self.expect("]")
            return Node("root", (self.argument(), degree))
        if name == "pi":
            return Node("pi")
        if name == "infty":
            return Node("infinity")
        if name in _FUNCTIONS:
            return self.function(name)
        if text in _WRAPPERS:
            return self.wrapped()
        if name in _GREEK:
            return self.symbol(name)
        raise Unreadable(f"{text!r} is not in the grammar")

    def wrapped(self) -> Node:
        r"""\mathrm{e}, \operatorname{lcm}(4, 6), \text{13}: what stands inside, as a name if it is one."""
        if self.peek() != "{":
            return self.primary()
        close = next((i for i in range(self.at, len(self.tokens)) if self.tokens[i].text == "}"), None)
        inner = self.tokens[self.at + 1 : close]
        if len(inner) == 1 and inner[0].kind == "word":
            self.at = (close or 0) + 1
            return self.letters(inner[0].text)
        return self.argument()

    def letters(self, text: str) -> Node:
        """A known name, or letters side by side: a product of symbols."""
        if text in _FUNCTIONS:
            return self.function(text)
        if text in _CALLS and self.peek() in ("(", "{"):
            return self.call(text)
        if text in ("pi", "Pi"):
            return Node("pi")
        if text in ("inf", "infty", "infinity", "oo"):
            return Node("infinity")
        if len(text) > 1:
            if len(text) > 3:
                raise Unreadable(f"{text!r} is a word")
            self.at -= 1
            self.tokens[self.at : self.at + 1] = [_Token("word", letter) for letter in text]
            self.at += 1
        return self.symbol(text[0])

    def symbol(self, name: str) -> Node:
        if self.peek() == "_":
            self.take()
            parts = []
            if self.peek() == "{":
                self.take()
                while self.peek() != "}":
                    parts.append(self.take().text)
                self.take()
            else:
                parts.append(self.take().text)
            name += "_" + "".join(part for part in parts if part not in _WRAPPERS and part not in "{}")
        while self.peek() in ("'", r"\prime"):
            self.take()
            name += "'"
        if name == "e":
            return Node("e")
        if name == "i":
            return Node("i")
        return Node("symbol", name=name)

    def function(self, name: str) -> Node:
        base: Node | None = None
        power: Node | None = None
        for _ in range(2):
            if self.peek() == "_" and base is None:
                self.take()
                base = self.argument()
            elif self.peek() == "^" and power is None:
                self.take()
                power = self.argument(signed=True)
        delimited = self.peek() in ("(", r"\{", "{", "[")
        node = self.postfix(self.primary()) if delimited else self.bare_argument()
        name = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}.get(name, name)
        if name == "lg":
            base, name = _number("10"), "log"
        if base is not None and name != "log":
            raise Unreadable(f"{name} takes no base")
        if name == "log" and base is not None:
            result = Node("divide", (Node("ln", (node,)), Node("ln", (base,))))
        else:
            result = Node("ln" if name == "log" else name, (node,))
        if power is None:
            return result
        if power == _negative(_number("1")) and name in ("sin", "cos", "tan"):
            return Node("arc" + name, (node,))
        return Node("power", (result, power))

    def bare_argument(self) -> Node:
        r"""What \sin applies to without parentheses: factors side by side, up to an operator or function."""
        negative = False
        while self.peek() in ("+", "-"):
            negative ^= self.take().text == "-"
        node = self.power()
        while self.starts_factor() and self.peek() not in ("(", r"\{") and not self.at_function():
            node = Node("multiply", (node, self.power()))
        return _negative(node) if negative else node

    def at_function(self) -> bool:
        return self.peek().removeprefix("\\") in _FUNCTIONS

    def call(self, name: str) -> Node:
        close = {"(": ")", "{": "}"}[self.take().text]
        arguments = [self.sum()]
        while self.peek() == ",":
            self.take()
            arguments.append(self.sum())
        self.expect(close)
        if name not in ("max", "min", "gcd", "lcm") and len(arguments) != 1:
            raise Unreadable(f"{name} of {len(arguments)} arguments")
        if name == "sqrt":
            return Node("root", (arguments[0], _number("2")))
        return Node(name, tuple(arguments))


def _number(text: str) -> Node:
    return Node("number", value=Fraction(text.rstrip(".") or "0"))


def _negative(node: Node) -> Node:
    if node.kind == "number" and node.value is not None:
        return Node("number", value=-node.value)
    return Node("negate", (node,))


# ------------------------------------------------------------------------------------------- evaluating


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


# ---------------------------------------------------------------------------------------------- comparing

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
    symbols = sorted(left.symbols() | right.symbols())
    if not symbols:
        return _agree(left, right, {})[0]
    num_real = num_complex = num_outside = 0
    problem: Unreadable | None = None
    for point in _points(tuple(symbols)):
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
    for point in _points(tuple(sorted(left.symbols() | right.symbols()))):
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


@cache
def _points(symbols: tuple[str, ...]) -> tuple[dict[str, Fraction], ...]:
    """Rational points of moderate size and of either sign, the same in every process."""
    return tuple(_point(symbols, index) for index in range(2 * NUM_POINTS))


def _point(symbols: tuple[str, ...], index: int) -> dict[str, Fraction]:
    """All positive at even indices, of random signs at odd ones."""
    source = random.Random(f"peira {index}")
    point = {}
    for symbol in symbols:
        sign = 1 if index % 2 == 0 else source.choice((-1, 1))
        point[symbol] = sign * Fraction(source.randint(10_007, 300_007), 100_003)
    return point
