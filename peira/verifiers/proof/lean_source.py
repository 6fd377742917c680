"""What a Lean submission may say, found as Lean reads it: comments and strings mean nothing."""

import re
from collections.abc import Collection

_TOKEN = re.compile(
    r"""
    (?P<block>/-)
  | (?P<line>--[^\n]*)
  | (?P<string>r\#*"|"(?:\\.|[^"\\])*")
  | (?P<character>'(?:\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)|[^'\\\s])')
  | (?P<word>\#?(?:«[^»\n]{1,200}»|[^\W\d]|[λΠΣ])[\w'!?]*(?:\.(?:«[^»\n]{1,200}»|[^\W\d][\w'!?]*))*)
  | (?P<other>\s+|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_BLOCK = re.compile(r"/-|-/")
_IMPORT = re.compile(r"^\s*(?:public\s+|meta\s+)*import\s")
REFUSED = {
    # run code while the file is compiled, and may read, write, or add declarations unchecked
    "#eval", "#eval!", "#reduce!", "run_cmd", "run_elab", "run_meta", "run_tac", "by_elab", "initialize",
    "builtin_initialize", "elab", "elab_rules", "simproc", "dsimproc", "simproc_decl", "dsimproc_decl",
    "declare_simp_like_tactic", "unsafe",
    # replace what is run, or switch checks off
    "implemented_by", "extern", "csimp", "export", "init",
}  # fmt: skip
_HEADS = {"IO", "Lean", "debug", "compiler"}
_MONADS = {"IO", "MetaM", "TacticM", "TermElabM", "CommandElabM", "CoreM"}


def bare(source: str) -> str | None:
    """The source with comments, strings and characters blanked; None when one of them has no end.

    Example:
        >>> bare('theorem t : True := by /- sorry -/ exact "sorry" -- sorry')
        'theorem t : True := by   exact   '
    """
    pieces: list[str] = []
    position = 0
    while match := _TOKEN.match(source, position):
        position = match.end()
        match match.lastgroup:
            case "block":
                end = _block_end(source, position)
                if end is None:
                    return None
                position = end
                pieces.append(" ")
            case "string" if not match.group().startswith('"'):
                end = source.find('"' + "#" * match.group().count("#"), position)
                if end < 0:
                    return None
                position = end + 1 + match.group().count("#")
                pieces.append(" ")
            case "line" | "string" | "character":
                pieces.append(" ")
            case _ if match.group() == '"':
                return None
            case _:
                pieces.append(match.group())
    return "".join(pieces)


def refusal(source: str, permitted: Collection[str] = ()) -> str | None:
    """Why this source is not even compiled, or None.

    What is merely no proof (`sorry`, axioms, `native_decide`) passes here and is refused on the evidence of
    the environment.
    """
    text = bare(source)
    if text is None:
        return "unfinished: a comment or string has no end"
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "word":
            continue
        word = match.group().replace("«", "").replace("»", "")
        first, *others = word.split(".")
        hits = {word} & REFUSED | ({first} & _HEADS if others else set()) | {word.split(".")[-1]} & _MONADS
        if hits - set(permitted):
            return f"not permitted: {match.group()[:80]}"
    return None


def without_imports(source: str) -> str:
    """The source without its import lines: what may be imported is ours to say."""
    return "\n".join("" if _IMPORT.match(line) else line for line in source.split("\n"))


def declares(source: str, name: str) -> bool:
    """Whether the source has a theorem or other declaration of this name."""
    text = bare(source) or ""
    kinds = "theorem|lemma|def|abbrev|axiom|opaque|instance|example|structure|inductive"
    return re.search(rf"(?<![\w.])(?:{kinds})\s+{re.escape(name)}(?![\w'!?.])", text) is not None


def _block_end(source: str, position: int) -> int | None:
    depth = 1
    while match := _BLOCK.search(source, position):
        position = match.end()
        depth += 1 if match.group() == "/-" else -1
        if depth == 0:
            return position
    return None
