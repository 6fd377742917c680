r"""Which commands a Rocq submission may give.

A screen before the checks that count: it refuses what runs code, reads or writes files, or switches a check
of the kernel off. What is merely no proof (`Admitted`, axioms, `Fail`) passes here and is refused on the
kernel's evidence. Sentences are found as Rocq finds them, so words in comments and strings mean nothing.
"""

import re
from collections.abc import Collection, Iterator

_TOKEN = re.compile(
    r"""
    (?P<comment>\(\*)
  | (?P<string>"(?:[^"]|"")*")
  | (?P<quote>")
  | (?P<end>\.(?=\s|\Z))
  | (?P<word>[^\W\d][\w']*(?:\.[^\W\d][\w']*)*)
  | (?P<other>\.+|\s+|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT = re.compile(r'\(\*|\*\)|"(?:[^"]|"")*"|"')
_ATTRIBUTES = re.compile(r'#\[((?:"(?:[^"]|"")*"|[^\]"])*)\]')
_BEFORE = re.compile(  # what may stand before a command or tactic: bullets, braces, goal selectors, Timeout 5
    r"[-+*{}\s]+|(?:all|par|!|\d[\d,\s-]*|\[\w+\])\s*:(?!=)|Timeout\s+\d+\s"
)
_WORD = re.compile(r"[^\W\d][\w']*")
_TACTIC = re.compile(r"[a-z_(\[]|\Z")
_NATIVE = re.compile(r"(?<![\w'])native_\w+")

PREFIXES = {
    "Time", "Fail", "Succeed", "Local", "Global", "Polymorphic", "Monomorphic", "Cumulative", "NonCumulative",
    "Private", "Program",
}  # fmt: skip
COMMANDS = {
    # statements, definitions, axioms: the kernel's evidence tells them apart
    "Theorem", "Lemma", "Fact", "Remark", "Corollary", "Proposition", "Property", "Example", "Goal",
    "Definition", "Let", "Fixpoint", "CoFixpoint", "Function", "Inductive", "CoInductive", "Variant",
    "Record", "Structure", "Class", "Instance", "Existing", "Scheme", "Combined", "Functional", "Derive",
    "Axiom", "Axioms", "Parameter", "Parameters", "Conjecture", "Conjectures", "Hypothesis", "Hypotheses",
    "Variable", "Variables", "Context", "Universe", "Universes", "Constraint",
    # proofs
    "Proof", "Qed", "Defined", "Save", "Admitted", "Abort", "Next", "Obligation", "Obligations", "Solve",
    "Final", "Unshelve", "Focus", "Unfocus",
    # modules
    "Module", "Section", "End", "Include", "Import", "Export", "Require", "From",
    # notations, scopes, hints, tactics
    "Notation", "Infix", "Reserved", "Open", "Close", "Delimit", "Undelimit", "Bind", "Arguments", "Implicit",
    "Generalizable", "Coercion", "Canonical", "Identity", "SubClass", "Hint", "Create", "Remove", "Ltac",
    "Tactic", "Opaque", "Transparent", "Strategy", "Typeclasses", "Typeclass",
    # questions
    "Check", "Print", "Search", "SearchPattern", "SearchRewrite", "About", "Compute", "Eval", "Locate",
    "Show", "Test", "Comments",
    # of commands with many meanings, those that are harmless
    "Add Ring", "Add Field", "Add Morphism", "Add Parametric", "Add Relation", "Add Setoid",
    "Declare Scope", "Declare Custom", "Declare Module", "Declare Instance", "Declare Reduction",
    "Set Implicit", "Unset Implicit", "Set Strict", "Unset Strict", "Set Contextual", "Unset Contextual",
    "Set Maximal", "Unset Maximal", "Set Printing", "Unset Printing", "Set Asymmetric", "Unset Asymmetric",
    "Set Keyed", "Set Primitive", "Unset Primitive", "Set Bullet", "Set Default Goal", "Set Default Proof",
    "Set Universe Polymorphism", "Unset Universe Polymorphism", "Set Nested",
}  # fmt: skip
ATTRIBUTES = {
    "local", "global", "export", "program", "universes", "polymorphic", "monomorphic", "cumulative",
    "noncumulative", "template", "canonical", "deprecated", "refine", "private", "using", "reversible",
    "projections", "primitive", "warnings", "yes", "no", "since", "note",
}  # fmt: skip


def refusal(source: str, permitted: Collection[str] = ()) -> str | None:
    """Why this source is not even compiled, or None.

    Args:
        permitted: further commands ("Unset Guard") and attributes ("bypass_check") to let pass.

    Example:
        >>> refusal("Theorem t : True. (* Declare ML Module *) Proof. exact I. Qed.")
        >>> refusal('Redirect "x" Print nat.')
        'command not permitted: Redirect "x" Print nat'
    """
    tactics: set[str] = set()
    for sentence in sentences(source):
        if sentence is None:
            return "unfinished: the last sentence, comment or string has no end"
        attributes, rest = _head(sentence)
        for name in attributes:
            if name not in ATTRIBUTES and name not in permitted:
                return f"attribute not permitted: {name}"
        if native := _NATIVE.search(rest):
            return f"tactic not permitted: {native.group()}"
        if _TACTIC.match(rest):
            continue
        word = _WORD.match(rest)
        if word and word.group() in ("Ltac", "Tactic"):
            tactics |= set(_WORD.findall(rest))
        if not (word and word.group() in tactics) and not _known(rest, permitted):
            return f"command not permitted: {' '.join(rest.split())[:80]}"
    return None


def sentences(source: str) -> Iterator[str | None]:
    """The sentences in order, comments left out, without the final dot; None last if one is unfinished."""
    pieces: list[str] = []
    position = 0
    while match := _TOKEN.match(source, position):
        position = match.end()
        match match.lastgroup:
            case "quote":
                yield None
                return
            case "comment":
                end = _comment_end(source, position)
                if end is None:
                    yield None
                    return
                position = end
                pieces.append(" ")
            case "end":
                yield "".join(pieces).strip()
                pieces = []
            case _:
                pieces.append(match.group())
    if "".join(pieces).strip(" \t\r\n-+*{}"):
        yield None


def declares(sentence: str, name: str) -> bool:
    """Whether a sentence begins the declaration of this name."""
    words = _WORD.findall(_head(sentence)[1])
    return len(words) > 1 and words[1] == name


def is_command(sentence: str, *names: str) -> bool:
    """Whether a sentence is one of these commands."""
    word = _WORD.match(_head(sentence)[1])
    return word is not None and word.group() in names


def _comment_end(source: str, position: int) -> int | None:
    depth = 1
    while match := _COMMENT.search(source, position):
        position = match.end()
        if match.group() == '"':
            return None  # a string without an end, within the comment
        depth += {"(*": 1, "*)": -1}.get(match.group(), 0)
        if depth == 0:
            return position
    return None


def _head(sentence: str) -> tuple[list[str], str]:
    """Names in the attributes, and what remains without them, bullets, selectors and prefixes."""
    attributes: list[str] = []
    while True:
        if match := _ATTRIBUTES.match(sentence):
            unquoted = re.sub(r'"(?:[^"]|"")*"', "", match.group(1))
            attributes += _WORD.findall(unquoted)
        elif not (match := _BEFORE.match(sentence)):
            match = _WORD.match(sentence)
            if match is None or match.group() not in PREFIXES or not sentence[match.end() :].strip():
                return attributes, sentence
        sentence = sentence[match.end() :]


def _known(command: str, permitted: Collection[str]) -> bool:
    words = command.split()
    if words[0] in ("Print", "Require", "From") and '"' in command:
        return False  # a file name
    heads = {" ".join(words[:count]) for count in (1, 2, 3)}
    word = _WORD.match(command)
    return not heads.isdisjoint(COMMANDS | set(permitted)) or (word is not None and word.group() in COMMANDS)
