r"""Judge a mathematical answer."""

import logging
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from peira.errors import VerifierError
from peira.types.task import Task
from peira.types.verdict import Attempt, Verdict
from peira.verifiers.answer import answer_tag, boxes, final_answer, last_box, shorten, strip_thinking, unread
from peira.verifiers.comparing import same
from peira.verifiers.expression import MAX_CHARACTERS, Unreadable
from peira.verifiers.forms import DEFAULT_POLICY, Form, Policy
from peira.verifiers.reading import clean, read_form


@dataclass(frozen=True, slots=True, kw_only=True)
class MathVerifier:
    r"""Right when the one answer that the completion commits to equals the task's answer.

    The thinking part is left out, one answer is extracted, and both answers are brought to a normal form and
    compared exactly: fractions, decimals, radicals, expressions in variables, sets, tuples, intervals,
    inequalities, equations, matrices, units, percentages, numbers in a base, words. A reference outside of
    that grammar (integrals, sums, limits) is math-verify's to compare, within limits.

    Example:
        >>> task = Task(id="half", prompt="?", answer="0.5")
        >>> MathVerifier().verify(task, Attempt(text=r"so \boxed{\frac{1}{2}}")).score
        1.0
    """

    extract: Literal["boxed", "final", "tag", "whole"] = "boxed"
    """boxed: the last complete \\boxed{}; final: that, else the last "answer is ..." or "#### ..." line; tag:
    the last `<answer>` element; whole: a box if there is one, else the whole text."""
    policy: Policy = DEFAULT_POLICY
    max_boxes: int | None = None
    """More different boxed answers than this are no answer; None counts them in `parts` only."""
    math_verify: bool = True
    """Ask math-verify when the reference is outside of our own grammar."""

    def prepare(self) -> None:
        """Load what the first answer would wait for."""
        import mpmath  # noqa: F401

        if self.math_verify:
            import math_verify  # noqa: F401

    def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Judge one attempt: 1 or 0; UNPARSEABLE or TRUNCATED with score 0 when there is no readable answer.

        Raises:
            VerifierError: the task's answer cannot be read.
        """
        gold, expected = _reference(task, self.policy)
        final = strip_thinking(attempt.text)
        if final is None:
            return unread(attempt, "the thinking part never ends")
        said = self._said(final)
        if said is None or not said.strip():
            return unread(attempt, "no answer")
        said = said.strip()
        num_boxes = len({box.strip() for box in boxes(final)})
        if self.max_boxes is not None and num_boxes > self.max_boxes:
            return unread(attempt, f"{num_boxes} different boxed answers")
        detail = f"read {shorten(said)}, expected {shorten(gold)}"
        parts = {"num_boxes": float(num_boxes)}
        try:
            right = self._same(gold, expected, said)
        except (Unreadable, RecursionError) as problem:
            verdict = unread(attempt, f"{detail}: {problem}")
            return Verdict(score=0.0, status=verdict.status, detail=verdict.detail, parts=parts)
        return Verdict(score=float(right), detail=detail, parts=parts)

    def _said(self, text: str) -> str | None:
        match self.extract:
            case "boxed":
                return last_box(text)
            case "final":
                return final_answer(text)
            case "tag":
                tag = answer_tag(text)
                return None if tag is None else last_box(tag) or tag
            case "whole":
                return last_box(text) or text

    def _same(self, gold: str, expected: "tuple[Form, ...] | None", said: str) -> bool:
        if len(said) > MAX_CHARACTERS:
            raise Unreadable(f"an answer of {len(said)} characters")
        if expected is None:
            if _spelling(said) == _spelling(gold):
                return True
            if not self.math_verify or r"\text" in gold:
                return False  # words and formulas mixed: only their spelling can be compared
        try:
            given = read_form(said, self.policy)
        except (Unreadable, RecursionError):
            if expected is None:
                return _asked(gold, said)
            raise
        if expected is None:
            return _asked(gold, said)
        problem: Unreadable | None = None
        for left in expected:
            for right in given:
                try:
                    if same(left, right, self.policy):
                        return True
                except Unreadable as error:
                    problem = error
        if problem is not None:
            raise problem
        return False


def _reference(task: Task, policy: Policy) -> tuple[str, "tuple[Form, ...] | None"]:
    if task.answer is None or isinstance(task.answer, bool | dict):
        raise VerifierError(f"task {task.id!r}: answer = {task.answer!r}: expected a mathematical answer")
    text = str(task.answer).rsplit("####", 1)[-1].strip()
    gold = (last_box(text) or text).strip()
    if not gold:
        raise VerifierError(f"task {task.id!r}: answer = {task.answer!r}: expected a mathematical answer")
    return gold, _read_reference(gold, policy)


def _spelling(text: str) -> str:
    return "".join(clean(text).split())


@lru_cache(maxsize=4096)
def _read_reference(gold: str, policy: Policy) -> "tuple[Form, ...] | None":
    """Its readings, or None when the grammar does not know it."""
    try:
        forms = read_form(gold, policy)
    except (Unreadable, RecursionError):
        return None
    try:
        same(forms[0], forms[0], policy)
    except (Unreadable, RecursionError) as problem:
        raise VerifierError(f"answer = {gold!r}: it cannot be evaluated: {problem}") from problem
    return forms


# ------------------------------------------------------------------------------------------- math-verify


def _asked(gold: str, said: str) -> bool:
    """What math-verify says of two answers of which one is outside our grammar.

    Raises:
        Unreadable: the answer is one that it must not be shown, or cannot read.
        VerifierError: it cannot read the reference.
    """
    gold, said = clean(gold), clean(said)
    for text in (gold, said):
        if _towers(text):
            raise Unreadable("a power or factorial that may not be evaluated")
        if r"\text" in text:
            raise Unreadable("words within an expression")
    expected = _parsed(gold)
    if expected is None:
        raise VerifierError(
            f"answer = {gold!r}: expected a mathematical answer; neither we nor math-verify can read it"
        )
    given = _parsed(said)
    if given is None:
        raise Unreadable("neither we nor math-verify can read it")
    if type(expected).__name__ != type(given).__name__ and {type(expected).__name__, type(given).__name__} & {
        "FiniteSet", "Tuple", "Interval", "Union", "BooleanTrue", "BooleanFalse", "str",
    }:  # fmt: skip
        return False
    from math_verify import verify

    # 30 decimals rather than its 6, so that small numbers are told apart.
    return bool(verify(expected, given, float_rounding=30, numeric_precision=60, timeout_seconds=None))


def _parsed(text: str) -> Any:
    from math_verify import LatexExtractionConfig, parse

    # Without its plain-expression reader: that one evaluates text as Python.
    found = parse(
        rf"\boxed{{{text}}}",
        extraction_config=[LatexExtractionConfig(boxed_match_priority=0)],
        fallback_mode="no_fallback",
        parsing_timeout=None,
    )
    return found[0] if found and not isinstance(found[0], str) else None


def _towers(text: str) -> bool:
    """Whether something in it could take for ever: big exponents, towers, factorials."""
    exponents = re.findall(r"\^\s*\{?\s*[-+]?\s*\(?(\d+)", text)
    nested = re.search(r"\^\s*\{[^{}]*\^", text) is not None
    return nested or "!" in text or any(len(digits) > 3 for digits in exponents) or r"\binom" in text


logging.getLogger("math_verify").setLevel(logging.ERROR)
logging.getLogger("latex2sympy2_extended").setLevel(logging.ERROR)
