r"""Mathematical expressions: a closed grammar and a tree.

Text is read by a grammar of our own, so nothing a policy writes is ever executed. Length and nesting are
limited here; what the tree may evaluate to is limited in `evaluation.py`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

MAX_CHARACTERS = 512
MAX_NESTING = 32


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


_TOKEN = re.compile(
    r"(?P<number>\d+(?:\.\d*)?|\.\d+)|(?P<command>\\[A-Za-z]+|\\.)|(?P<word>[A-Za-z]+)|(?P<other>\*\*|\S)"
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
