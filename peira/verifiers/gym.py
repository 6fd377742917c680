"""Tasks of reasoning-gym, judged by the scorers that come with them.

Some of those scorers hand the answer to Python's `eval`, directly or through SymPy. Which ones is read from
their source; their answers pass a grammar first, so that an answer is a value and never a program.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from peira.errors import VerifierError
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict
from peira.verifiers.answer import answer_tag, last_box, shorten, strip_thinking, unread


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningGymVerifier:
    """Asks the family that made a task what an answer to it is worth.

    The family and what its scorer needs are read from `task.info["metadata"]`, as reasoning-gym made it. Many
    families give partial credit, some of them for the bare attempt; `partial` says whether that is kept.
    """

    extract: Literal["auto", "tag", "boxed", "whole"] = "auto"
    """tag: the last `<answer>` element; boxed: the last \\boxed{}; whole: everything after the thinking part;
    auto: the first of these three that is there."""
    partial: bool = True
    """False: anything below the full score is worth 0."""

    def prepare(self) -> None:
        """Load reasoning-gym before the clock runs."""
        import reasoning_gym  # noqa: F401

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge one attempt.

        Raises:
            VerifierError: the task does not say which family made it, or its scorer broke.
        """
        metadata = task.info.get("metadata")
        family = metadata.get("source_dataset") if isinstance(metadata, Mapping) else None
        if not isinstance(family, str):
            raise VerifierError(
                f"task {task.id!r}: info.metadata.source_dataset: expected a reasoning-gym family; "
                "load such tasks with `data.path: reasoning_gym:NAME`"
            )
        final = strip_thinking(attempt.text)
        said = None if final is None else self._said(final)
        if not said:
            return unread(attempt, "no answer")
        if not _allowed(_guard(family), said):
            return unread(attempt, f"read {shorten(said)!r}: not an answer that may be evaluated")
        entry = {
            "question": task.info.get("question") or _question(task),
            "answer": task.answer,
            "metadata": metadata,
        }
        scorer = _scorer(family)
        if _accepts_anything(family, scorer, entry):
            raise VerifierError(
                f"task {task.id!r}: the scorer of {family!r} accepts any text as right; "
                "judge this family with another verifier (`verifier: exact` where answers are words)"
            )
        try:
            score = float(scorer(said, entry))
        except Exception as error:
            if not _works(scorer, entry):
                raise VerifierError(f"task {task.id!r}: the scorer of {family!r} broke: {error!r}") from error
            return unread(attempt, f"read {shorten(said)!r}: the scorer cannot read it")
        if not self.partial:
            score = float(score >= 1.0)
        return Verdict(score=score, detail=f"read {shorten(said)!r}, expected {shorten(str(task.answer))!r}")

    def _said(self, text: str) -> str | None:
        match self.extract:
            case "tag":
                return answer_tag(text)
            case "boxed":
                return last_box(text)
            case "whole":
                return text.strip()
            case "auto":
                return answer_tag(text) or last_box(text) or text.strip()


@cache
def _scorer(family: str) -> Callable[[str, dict[str, Any]], float]:
    from reasoning_gym.factory import DATASETS, get_score_answer_fn

    if family not in DATASETS:
        raise VerifierError(f"reasoning_gym: family = {family!r}: not one of the {len(DATASETS)} installed")
    scorer: Callable[[str, dict[str, Any]], float] = get_score_answer_fn(family)
    return scorer


_gullible: dict[str, bool] = {}


def _accepts_anything(
    family: str, scorer: Callable[[str, dict[str, Any]], float], entry: dict[str, Any]
) -> bool:
    """Whether a scorer gives full marks to a text that answers nothing; looked at once per family."""
    if family not in _gullible:
        try:
            _gullible[family] = float(scorer("(no answer)", entry)) >= 1.0
        except Exception:
            _gullible[family] = False
    return _gullible[family]


def _works(scorer: Callable[[str, dict[str, Any]], float], entry: dict[str, Any]) -> bool:
    """Whether the family's own answer can be scored: then an exception was the other answer's doing."""
    try:
        return float(scorer(str(entry["answer"]), entry)) > 0
    except Exception:
        return False


def _question(task: Task) -> str:
    return task.prompt if isinstance(task.prompt, str) else task.prompt[-1].content


Guard = Literal["none", "expression", "literal"]
_WORD = re.compile(r"[A-Za-z_]+")
_NAMES = {
    "sin", "cos", "tan", "sec", "csc", "cot", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "log",
    "ln", "sqrt", "Abs", "pi", "E",
}  # fmt: skip
_POWER = re.compile(
    r"(?:\*\*|\^)\s*(?:(?P<exponent>\(\s*-?\d{1,2}(?:\s*/\s*\d{1,2})?\s*\)|-?\d{1,2}|[a-z]))?"
)
MAX_EVALUATED = 400
"""Characters of an answer that a scorer evaluates."""


@cache
def _guard(family: str) -> Guard:
    """What a family's scorer does with an answer, by its source."""
    from reasoning_gym.factory import DATASETS

    if family not in DATASETS:
        return "none"
    source = inspect.getsource(inspect.getmodule(DATASETS[family][0]) or DATASETS[family][0])
    if re.search(r"(?:parse_expr|sympify)\(\s*answer", source):
        return "expression"
    return "literal" if re.search(r"\b(?:eval|exec)\(\s*answer", source) else "none"


def _allowed(guard: Guard, said: str) -> bool:
    r"""Whether an answer is harmless for a scorer that evaluates it.

    Example:
        >>> [_allowed("expression", said) for said in ("(8 - 2)*4", "x**2/2 + C", "9**9**9", "open('f')")]
        [True, True, False, False]
        >>> [_allowed("literal", said) for said in ("[[1, 0], [0, 1]]", "exit()", "9**9")]
        [True, False, False]
    """
    if guard == "none":
        return True
    if guard == "literal":
        return re.search(r"[(){}*=@\\]|\bfor\b|\blambda\b|<<", said) is None
    if len(said) > MAX_EVALUATED or not re.fullmatch(r"[0-9A-Za-z+\-*/^(). \n]*", said):
        return False
    if re.search(r"[A-Za-z)]\s*\.|\.\s*[A-Za-z(]|\d{13}|\d\s*[eE]\s*[-+]?\s*\d{3}", said):
        return False
    if any(len(word) > 1 and word not in _NAMES for word in _WORD.findall(said)):
        return False
    powers = list(_POWER.finditer(said))
    plain = all(
        power["exponent"] and not re.match(r"\s*(?:\*\*|\^)", said[power.end() :]) for power in powers
    )
    return plain and len(re.findall(r"\)\s*(?:\*\*|\^)", said)) <= 3
