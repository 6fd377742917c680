r"""From the text of an answer to its normal form."""

import re
from collections.abc import Sequence
from fractions import Fraction

from peira.verifiers.answer import plain_digits
from peira.verifiers.evaluation import infinite_sign
from peira.verifiers.expression import MAX_CHARACTERS, MAX_NESTING, Node, Unreadable, read_expression
from peira.verifiers.forms import DEFAULT_POLICY, Form, Policy, assigned, node_of
from peira.verifiers.units import Unit, find_unit

_SPACES = re.compile(r"\\(?:,|;|:|!|quad|qquad| )|~|[\u2000-\u200b\u202f\u00a0]")
_SIZES = re.compile(r"\\(?:left|right|[bB]igg?[lr]?)(?![A-Za-z])\.?")
_SYNONYMS = {
    r"\leqslant": r"\le", r"\geqslant": r"\ge", r"\leq": r"\le", r"\geq": r"\ge", r"\lt": "<", r"\gt": ">",
    r"\neq": r"\ne", r"\varnothing": r"\emptyset", r"\lbrace": r"\{", r"\rbrace": r"\}", r"\lparen": "(",
    r"\rparen": ")", r"\lbrack": "[", r"\rbrack": "]", r"\colon": ":", r"\vert": "|", r"\dots": r"\ldots",
    r"\thickapprox": r"\approx", r"\simeq": r"\approx", r"\doteq": r"\approx", r"\mid": "|",
    r"\land": r"\wedge",
}  # fmt: skip
_UNICODE = {
    "\u2264": r"\le ", "\u2265": r"\ge ", "\u2260": r"\ne ", "\u221e": r"\infty ", "\u222a": r"\cup ",
    "\u2229": r"\cap ", "\u2205": r"\emptyset ", "\u2208": r"\in ", "\u00b1": r"\pm ", "\u2213": r"\mp ",
    "\u2248": r"\approx ", "\u00d7": r"\times ", "\u00f7": r"\div ", "\u00b7": r"\cdot ", "\u22c5": r"\cdot ",
    "\u2236": ":", "\u00b0": r"^\circ ", "\u03c0": r"\pi ", "\u211d": r"\mathbb{R}", "\u2124": r"\mathbb{Z}",
    "\u2115": r"\mathbb{N}", "\u211a": r"\mathbb{Q}", "\u2102": r"\mathbb{C}", "\u221a": r"\sqrt ",
}  # fmt: skip
_COMMAND = re.compile(r"\\[A-Za-z]+")
_SUPERSCRIPTS = str.maketrans("\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079", "0123456789")
_RAISED = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+")


def clean(text: str) -> str:
    """Spaces, sizes, synonyms and characters of other scripts brought to one spelling.

    Raises:
        Unreadable: too long or too deeply nested.
    """
    if len(text) > MAX_CHARACTERS:
        raise Unreadable(f"an answer of {len(text)} characters")
    text = _RAISED.sub(lambda match: "^{" + match.group().translate(_SUPERSCRIPTS) + "}", text)
    for character, command in _UNICODE.items():
        text = text.replace(character, command)
    text = plain_digits(text)
    text = text.replace(r"\$", "\x00").replace("$", " ").replace("\x00", r"\$")
    text = text.replace(r"\\", "\x01")  # a line break of a matrix, before spaces like "\ " are removed
    text = re.sub(r"\\[()\[\]]|\\displaystyle|\\textstyle|\\limits|\\!", "", text)
    text = _SPACES.sub(" ", _SIZES.sub("", text))
    text = _COMMAND.sub(lambda match: _SYNONYMS.get(match.group(), match.group()), text)
    text = re.sub(r"\\[dtc]frac(?![A-Za-z])", r"\\frac", text)
    text = re.sub(r"(?<=\d)\{,\}(?=\d{3})", ",", text)
    text = " ".join(text.replace("\x01", r" \\ ").split()).rstrip(" .,;")
    depth = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if depth > MAX_NESTING:
            raise Unreadable(f"more than {MAX_NESTING} levels of nesting")
    return text


def split(text: str, separators: Sequence[str]) -> list[str]:
    """Cut at separators that stand outside of all brackets."""
    parts, start, depth, index = [], 0, 0, 0
    while index < len(text):
        if text.startswith((r"\{", "(", "[", "{", r"\begin", r"\lfloor", r"\lceil"), index):
            depth += 1
            index += 2 if text[index] == "\\" else 1
            continue
        if text.startswith((r"\}", ")", "]", "}", r"\end", r"\rfloor", r"\rceil"), index):
            depth -= 1
            index += 2 if text[index] == "\\" else 1
            continue
        if depth <= 0:
            found = next(
                (s for s in separators if text.startswith(s, index) and _whole(text, index, s)), None
            )
            if found is not None:
                parts.append(text[start:index].strip())
                index += len(found)
                start = index
                continue
        index += 1
    parts.append(text[start:].strip())
    return parts


def _whole(text: str, index: int, separator: str) -> bool:
    """A command ends where its letters end: \\le is not the start of \\left."""
    end = index + len(separator)
    return not (separator[-1].isalpha() and end < len(text) and text[end].isalpha())


_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|rm|operatorname)\s*\{([^{}]*)\}")
_UPRIGHT = re.compile(r"\\(?:text|textrm|mathrm|mbox|rm)\s*\{([^{}]*)\}")
_WORDS = re.compile(r"[^\W\d_]+(?:[ '.,\-][ ]*[^\W\d_]+)*[.!]?")
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_GROUPED_WITHIN = re.compile(r"([^\d,()\[\]]*)(\d{1,3}(?:,\d{3})+(?:\.\d+)?)([^\d,()\[\]]*)")
_SPACED = re.compile(r"[-+]?\d{1,3}(?: \d{3})+(?:\.\d+)?")
_DECIMAL = re.compile(r"[-+]?(?:\d+\.\d+|\.\d+|\d+)")
_MANTISSA = r"([-+]?(?:\d+(?:\.\d*)?|\.\d+))"
_SCIENTIFIC = re.compile(
    rf"{_MANTISSA}(?:[eE]([-+]?\d{{1,3}})|\s*(?:\\times|\\cdot)\s*10\s*\^\s*(?:\{{\s*([-+]?\d{{1,3}})\s*\}}|(\d)))"
)
_REPEATING = re.compile(r"([-+]?)(\d*)\.(\d*)\\(?:overline|bar|dot)\s*\{?(\d+)\}?")
_MIXED = re.compile(r"([-+]?)\s*(\d+)\s*\\frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}")
_MIXED_PLAIN = re.compile(r"([-+]?)\s*(\d+) (\d+)/(\d+)")
_BASED = re.compile(r"([0-9A-Fa-f]+)_\{?\s*(?:\\text\{)?\s*(\d{1,2})\s*\}?\}?")
_MATRIX = re.compile(r"\\begin\{([pbB]?matrix|smallmatrix|array)\}(?:\{[^{}]*\})?(.*)\\end\{\1\}", re.DOTALL)
_DEGREES = re.compile(
    r"(.+?)\s*(?:\^\s*\{?\s*\\circ\s*\}?|\\degree)\s*(?:(?:\\(?:text|mathrm)\s*\{)?\s*([CF])\s*\}?)?"
)
_APPLIED = re.compile(r"\\?(?:sin|cos|tan|cot|sec|csc)")
# \x02 and \x03 stand around what was in \text{}; a bare name needs a space, or two letters after a digit.
_MARKED_UNIT = re.compile(
    r"(?P<number>[^\x02]+?)\s*\x02(?P<unit>[^\x02\x03]+)\x03(?:\s*(?P<power>\^[23]))?(?![\^\d])"
)
_SPACED_UNIT = re.compile(
    r"(?P<number>[^\x02]*?[\d})])(?:(?P<gap> )|(?=[A-Za-z]{2}))"
    r"(?P<unit>(?:(?:square|cubic) )?[A-Za-z]+(?:/[A-Za-z]+| per [A-Za-z]+)?)\.?(?P<power>\^[23])?(?![\^\w])"
)
_JOINED = re.compile(
    r"\\(?:text|mathrm|mbox)\s*\{\s*,?\s*(?:and|or)\s*,?\s*\}|\s(?:and|or)\s|\\(?:vee|lor)\b"
)
_CONJUNCTION = re.compile(r"\band\b|\\wedge(?![A-Za-z])")
_MONEY = {r"\$": "dollar", "\u20ac": "euro", r"\text{\$}": "dollar", r"\euro": "euro"}
_NUMBERS = " (a set of numbers)"
_REALS = "R" + _NUMBERS
_RELATIONS = (r"\le", r"\ge", r"\ne", "<=", ">=", "<", ">", "=")
_SIGNS = {r"\le": "<=", r"\ge": ">=", r"\ne": "!=", "<=": "<=", ">=": ">=", "<": "<", ">": ">", "=": "="}


def read_form(text: str, policy: Policy = DEFAULT_POLICY) -> tuple[Form, ...]:
    """The readings of an answer: one, or two where 100,200 may be a number or a list.

    Raises:
        Unreadable: outside the grammar, or above a limit.
    """
    text = clean(text)
    if not text:
        raise Unreadable("it is empty")
    return tuple(_Reader(policy).readings(text))


class _Reader:
    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.depth = 0

    def readings(self, text: str) -> list[Form]:
        forms = [self.form(text)]
        if _GROUPED.fullmatch(text):
            forms.append(Form("list", tuple(self.form(part) for part in text.split(","))))
        return forms

    def form(self, text: str) -> Form:
        self.depth += 1
        try:
            if self.depth > MAX_NESTING:
                raise Unreadable("too many levels")
            return self._form(text)
        finally:
            self.depth -= 1

    def _form(self, text: str) -> Form:
        text = self._undressed(text)
        if not text:
            raise Unreadable("it is empty")
        grouped = _GROUPED_WITHIN.fullmatch(text)
        if grouped is not None:
            text = grouped.group(1) + grouped.group(2).replace(",", "") + grouped.group(3)
        for reader in (self._words, self._list, self._relation, self._union, self._bracketed, self._special):
            form = reader(text)
            if form is not None:
                return form
        return self._quantity(text)

    def _undressed(self, text: str) -> str:
        """Without \\text{} around the whole, and without braces that only group."""
        text = text.strip().rstrip(".,;").strip()
        while True:
            match = _TEXT.fullmatch(text)
            if match is not None:
                text = match.group(1).strip()
            elif text.startswith("{") and text.endswith("}") and _closes_at_end(text):
                text = text[1:-1].strip()
            else:
                return text

    def _words(self, text: str) -> Form | None:
        plain = _TEXT.sub(lambda match: f" {match.group(1)} ", text)
        plain = " ".join(plain.split()).rstrip(".!")
        if len(plain) < 2 or not _WORDS.fullmatch(plain):
            return None
        if plain in ("pi", "infinity", "inf") or find_unit(plain) is not None:
            return None if plain in ("pi", "infinity", "inf") else Form("words", text=plain)
        if all(len(word) == 1 for word in plain.split()) and "\\text" not in text:
            return None  # a product of symbols
        separated = [word.casefold() for word in re.split(r"[ ,]+", plain)]
        if any(word in ("and", "or") for word in separated) or "," in plain:
            parts = [part for part in re.split(r"\s*,\s*(?:(?:and|or)\s+)?|\s+(?:and|or)\s+", plain) if part]
            if len(parts) > 1:
                return Form("list", tuple(self.form(part) for part in parts))
        return Form("words", text=plain)

    def _list(self, text: str) -> Form | None:
        marked = re.sub(
            r"\\(?:text|mathrm|mbox)\s*\{\s*,?\s*(?:and|or)\s*,?\s*\}|\s(?:and|or)\s|\\(?:vee|lor)\b",
            " ; ",
            text,
        )
        marked = re.sub(r",\s*;|;\s*,", ";", marked)
        parts = split(marked, (",", ";"))
        if len(parts) == 1:
            signed = self._plus_minus(text)
            return None if signed is None else Form("list", signed)
        items: list[Form] = []
        for part in parts:
            if not part:
                raise Unreadable("an empty place in a list")
            form = self.form(part)
            items.extend(form.items if form.kind == "list" else (form,))
        if any(item.kind == "inequality" for item in items):
            if _CONJUNCTION.search(text):
                raise Unreadable("inequalities joined by 'and'")
            return Form("union", tuple(items))
        return Form("list", _same_subject(items))

    def _plus_minus(self, text: str) -> tuple[Form, ...] | None:
        count = len(re.findall(r"\\pm(?![A-Za-z])", text)) + text.count("+-") + text.count("+/-")
        if count == 0 and r"\mp" not in text:
            return None
        if count != 1 or r"\mp" in text:
            raise Unreadable("more than one plus-minus sign")
        return tuple(
            self.form(re.sub(r"\\pm(?![A-Za-z])|\+/-|\+-", f" {sign} ", text, count=1).strip())
            for sign in "+-"
        )

    def _relation(self, text: str) -> Form | None:
        match = re.fullmatch(r"([A-Za-z])\s*\\in(?![A-Za-z])\s*(.+)", text)
        if match is not None:
            return self.form(match.group(2))
        if len(exact := split(text, (r"\approx",))) > 1:
            if self.policy.approximate_tail == "ignore":
                return self.form(exact[0])
            raise Unreadable("an approximation beside the answer")
        parts, signs = _relation_parts(text)
        if not signs:
            return None
        if set(signs) == {"="}:
            return Form("equation", tuple(self.form(part) for part in parts), text="=")
        if "=" in signs or (len(signs) > 1 and "!=" in signs):
            raise Unreadable("a relation of this kind")
        return Form("inequality", tuple(self.form(part) for part in parts), text=" ".join(signs))

    def _union(self, text: str) -> Form | None:
        parts = split(text, (r"\cup",))
        if len(parts) == 1:
            return None
        return Form("union", tuple(self.form(part) for part in parts))

    def _bracketed(self, text: str) -> Form | None:
        if re.fullmatch(r"\\emptyset|\\\{\s*\\\}", text):
            return Form("set")
        if text.startswith(r"\{") and text.endswith(r"\}") and _closes_at_end(text):
            inner = text[2:-2].strip()
            if ":" in inner or "|" in inner:
                return self._set_builder(inner)
            forms = [self.form(part) for part in split(inner, (",", ";"))]
            return Form("set", tuple(item for form in forms for item in _spread(form)))
        if text[0] in "([" and text[-1] in ")]" and _closes_at_end(text):
            parts = split(text[1:-1], (",", ";"))
            if len(parts) > 1:
                if not all(parts):
                    raise Unreadable("an empty place in a tuple")
                items = tuple(self.form(part) for part in parts)
                if [_sign_of_infinity(item) for item in items] == [-1, 1]:
                    return Form("words", text=_REALS)
                return Form("tuple", items, text=text[0] + text[-1])
            if text[0] == "(" and text[-1] == ")":
                return self.form(text[1:-1])
            raise Unreadable("brackets around one thing")
        match = _MATRIX.fullmatch(text)
        if match is not None:
            rows = [row.strip() for row in match.group(2).split(r"\\")]
            rows = [row for row in rows if row]
            forms = [Form("tuple", tuple(self.form(cell) for cell in row.split("&"))) for row in rows]
            if not forms or len({len(form.items) for form in forms}) != 1:
                raise Unreadable("a matrix whose rows differ in length")
            return Form("matrix", tuple(forms))
        return None

    def _set_builder(self, inner: str) -> Form:
        match = re.fullmatch(r"([A-Za-z])\s*(?:\\in\s*\\mathbb\s*\{?R\}?)?\s*[:|]\s*(.+)", inner)
        if match is not None:
            form = self.form(match.group(2))
            if form.kind == "inequality":
                return form
        return Form("words", text="{" + inner.replace(" ", "") + "}")

    def _special(self, text: str) -> Form | None:
        match = _BASED.fullmatch(text)
        if match is not None and 2 <= int(match.group(2)) <= 36 and any(c.isdigit() for c in match.group(1)):
            return Form("based", text=f"{match.group(1).upper().lstrip('0') or '0'}_{int(match.group(2))}")
        if re.fullmatch(r"\\mathbb\s*\{?[RZNQC]\}?(?:\^\{?[+\-*]?\}?)?", text):
            return Form("words", text=re.sub(r"[\s{}]|\\mathbb", "", text) + _NUMBERS)
        parts = split(text, (":",))
        if len(parts) > 1 and all(parts):
            return Form("ratio", tuple(self.form(part) for part in parts))
        return None

    # ------------------------------------------------------------------------------------- numbers, units

    def _quantity(self, text: str) -> Form:
        for mark, name in _MONEY.items():
            if text.startswith(mark):
                form = self._number(text[len(mark) :].strip())
                return Form(
                    "expression", node=form.node, unit=find_unit(name), decimal_digits=form.decimal_digits
                )
        pieces = self._pieces(text)
        if pieces is None:
            return self._number(text)
        if len(pieces) == 1:
            form, unit = pieces[0]
            return Form("expression", node=form.node, unit=unit, decimal_digits=form.decimal_digits)
        if len({unit.dimension for _, unit in pieces}) != 1:
            raise Unreadable("units that do not add up")
        smallest = min((unit for _, unit in pieces), key=lambda unit: unit.factor)
        terms = tuple(
            Node("multiply", (node_of(form), Node("number", value=unit.factor / smallest.factor)))
            for form, unit in pieces
        )
        return Form("expression", node=Node("add", terms), unit=smallest, compound=True)

    def _pieces(self, text: str) -> list[tuple[Form, Unit]] | None:
        """Numbers each followed by a unit, or None when no unit is there."""
        degrees = _DEGREES.fullmatch(text)
        if degrees is not None and not _APPLIED.search(degrees.group(1)):
            unit = find_unit({"C": "celsius", "F": "fahrenheit"}.get(degrees.group(2) or "", "degree"))
            assert unit is not None
            return [(self._number(degrees.group(1)), unit)]
        plain = re.sub(r"\^\s*\{\s*([23])\s*\}\s*$", r"^\1", text)
        marked = _UPRIGHT.sub(lambda match: f" \x02{match.group(1).strip()}\x03 ", plain)
        pieces = []
        rest = marked.strip()
        while rest:
            match = _MARKED_UNIT.match(rest) or _SPACED_UNIT.match(rest)
            if match is None:
                return None
            name = match.group("unit").strip() + (match.group("power") or "")
            if name.casefold() in ("percent", "per cent"):
                return None
            unit = find_unit(name)
            if unit is None and "\x02" in match.group() and re.fullmatch(r"[A-Za-z][A-Za-z .\-]+", name):
                unit = Unit(name.casefold(), f"named {name.casefold()}", Fraction(1))
            if unit is None:
                return None
            pieces.append((self._number(match.group("number")), unit))
            rest = rest[match.end() :].strip().removeprefix("and ").strip()
            if rest and not rest[0].isdigit():
                return None
        return pieces

    def _number(self, text: str) -> Form:
        """A number written in one of the usual ways, or an expression."""
        text = self._undressed(text).strip()
        percent = re.fullmatch(r"(.+?)\s*\\?%", text)
        if percent is not None:
            inner = self._number(percent.group(1))
            node = Node("percent", (node_of(inner),))
            return Form("expression", node=node, percent=True, decimal_digits=inner.decimal_digits)
        worded = re.fullmatch(r"(.+?)\s*(?:\\(?:text|mathrm)\s*\{)?\s*(?:percent|per cent)\s*\}?", text)
        if worded is not None:
            return self._number(worded.group(1) + "%")
        digits = None
        if _GROUPED.fullmatch(text) or _SPACED.fullmatch(text):
            text = text.replace(",", "").replace(" ", "")
        if _DECIMAL.fullmatch(text):
            digits = len(re.sub(r"[-+.]", "", text).lstrip("0")) if "." in text else None
            return Form("expression", node=_literal(Fraction(text)), decimal_digits=digits)
        match = _SCIENTIFIC.fullmatch(text)
        if match is not None:
            mantissa, *exponents = match.groups()
            exponent = int(next(digits for digits in exponents if digits))
            return Form("expression", node=_literal(Fraction(mantissa) * Fraction(10) ** exponent))
        match = _REPEATING.fullmatch(text)
        if match is not None:
            return Form("expression", node=_literal(_repeating(*match.groups())))
        match = _MIXED.fullmatch(text) or _MIXED_PLAIN.fullmatch(text)
        if match is not None:
            sign, whole, top, bottom = match.groups()
            if int(bottom) == 0:
                raise Unreadable("a division by zero")
            value = int(whole) + Fraction(int(top), int(bottom))
            return Form("expression", node=_literal(-value if sign == "-" else value))
        if self.policy.log_base == "10":
            text = re.sub(r"(\\?)\blog(?![A-Za-z_])(?!\s*_)", r"\\log_{10}", text)
        if any(len(match.group(1).split()) > 1 for match in _TEXT.finditer(text)):
            raise Unreadable("words within an expression")
        text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
        return Form("expression", node=read_expression(text))


def _closes_at_end(text: str) -> bool:
    """Whether the bracket that opens at the start is the one that closes at the end."""
    depth = 0
    index = 0
    while index < len(text):
        if text.startswith(("\\{", "\\}"), index):
            depth += 1 if text[index + 1] == "{" else -1
            index += 2
        else:
            depth += (text[index] in "([{") - (text[index] in ")]}")
            index += 1
        if depth == 0:
            return index == len(text)
    return False


def _relation_parts(text: str) -> tuple[list[str], list[str]]:
    parts = split(text, _RELATIONS)
    signs = []
    position = 0
    for part in parts[:-1]:
        position = text.index(part, position) + len(part)
        rest = text[position:].lstrip()
        sign = next(sign for sign in _RELATIONS if rest.startswith(sign))
        position = len(text) - len(rest) + len(sign)
        signs.append(_SIGNS[sign])
    if signs and not all(parts):
        raise Unreadable("a relation with an empty side")
    return parts, signs


def _repeating(sign: str, whole: str, fixed: str, period: str) -> Fraction:
    value = Fraction(int(whole or "0")) + Fraction(int(fixed or "0"), 10 ** len(fixed))
    value += Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(fixed))
    return -value if sign == "-" else value


def _literal(value: Fraction) -> Node:
    return Node("number", value=value)


def _sign_of_infinity(form: Form) -> int:
    return 0 if form.node is None else infinite_sign(form.node)


def _spread(form: Form) -> tuple[Form, ...]:
    return form.items if form.kind == "list" else (form,)


def _same_subject(items: Sequence[Form]) -> tuple[Form, ...]:
    """`x = 1, x = 2` and `x = 1, 2` are the values of x; with several subjects the equations stay."""
    subjects = {item.items[0].node for item in items if item.kind == "equation"}
    if items[0].kind != "equation" or len(subjects) != 1:
        return tuple(items)
    values = [assigned(item) if item.kind == "equation" else item for item in items]
    return tuple(items) if None in values else tuple(value for value in values if value is not None)
