"""Small procedural problems and the traces that solve them, for pretraining tiny models.

A *habit* is a way of writing a solution down; an *error* is a deliberate mistake. Both are drawn with
settable shares, so that a model pretrained on the mixture is imperfect in a known way and RL has something to
improve, and so that families of models with different habits can be bred for studies.

| kind | prompt | habits |
|---|---|---|
| addition | `37+58=` | column, split, round, direct |
| copy | `copy bead` | spell, direct |
| reverse | `reverse bead` | spell, peel, direct |
| sort | `sort bead` | select, direct |

| error | what happens | answer |
|---|---|---|
| slip | one step comes out wrong, the rest follows from it | wrong |
| carry | a column's carry is forgotten (column addition only; a slip elsewhere) | wrong |
| final | all steps right, the last line copied wrongly | wrong |
| unsound | one step is wrong and nothing follows from it | right |
| noise | one character of the steps is garbled | right |
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from peira.errors import ModelError

LETTERS = "abcdefghijklmnop"
ERRORS = ("slip", "carry", "final")
MAX_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One procedural problem; equal prompts are equal problems."""

    kind: str
    prompt: str
    answer: str

    def is_heldout(self, fraction: float) -> bool:
        """Whether the problem belongs to the held-out share: fixed by its text, whatever the seed."""
        return zlib.crc32(self.prompt.encode()) / 2**32 < fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A problem with one written-out solution."""

    problem: Problem
    habit: str
    error: str
    """Empty when every step and the answer are right."""
    text: str
    answer: str
    """The one the trace ends with, which `problem.answer` need not be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSpec:
    """One component of a mixture of traces."""

    kind: str
    weight: float = 1.0
    min_length: int = 2
    """Digits of each number, or letters of the string."""
    max_length: int = 2
    habits: Mapping[str, float] = field(default_factory=lambda: {"direct": 1.0})
    """Relative frequency of each habit."""
    wrong_share: float = 0.0
    """Share of traces that end in a wrong answer."""
    errors: Mapping[str, float] = field(default_factory=lambda: {"slip": 1.0})
    """Relative frequency of the errors among the wrong ones: slip, carry, final."""
    unsound_share: float = 0.0
    """Share of traces that reach the right answer past a wrong step."""
    noise_share: float = 0.0
    """Share of traces with one garbled character before the answer."""
    final: str = "so {answer}"
    """How a trace ends; `so \\boxed{{{answer}}}` suits verifiers that look for a box."""

    def __post_init__(self) -> None:
        place = f"traces.{self.kind}"
        if self.kind not in HABITS:
            raise ModelError(f"traces: kind = {self.kind!r}: expected one of {sorted(HABITS)}")
        if not 1 <= self.min_length <= self.max_length:
            raise ModelError(
                f"{place}: min_length = {self.min_length}: expected 1 <= min_length <= max_length"
            )
        longest = MAX_DIGITS if self.kind == "addition" else len(LETTERS)
        if self.max_length > longest:
            raise ModelError(f"{place}: max_length = {self.max_length}: expected at most {longest}")
        for name, given, known in (
            ("habits", self.habits, tuple(HABITS[self.kind])),
            ("errors", self.errors, ERRORS),
        ):
            if unknown := set(given) - set(known):
                raise ModelError(f"{place}: {name} = {sorted(unknown)}: expected some of {list(known)}")
            if any(value < 0 for value in given.values()) or sum(given.values()) <= 0:
                raise ModelError(
                    f"{place}: {name} = {dict(given)}: expected weights >= 0, one of them above 0"
                )
        shares = self.wrong_share, self.unsound_share, self.noise_share
        if min(shares) < 0 or sum(shares) > 1:
            raise ModelError(
                f"{place}: wrong_share + unsound_share + noise_share = {sum(shares):g}: expected shares in "
                "[0, 1] that sum to at most 1"
            )
        if "{answer}" not in self.final:
            raise ModelError(f"{place}: final = {self.final!r}: expected a text that contains {{answer}}")


class _Hand:
    """Writes one step after the other, and gets the step numbered `slip_at` wrong."""

    def __init__(self, random: Random, *, slip_at: int = -1, forgets_carry: bool = False) -> None:
        self.random, self.slip_at, self.forgets_carry = random, slip_at, forgets_carry
        self.steps = 0

    def _slips(self) -> bool:
        self.steps += 1
        return self.steps - 1 == self.slip_at

    def number(self, value: int) -> int:
        """The result of one sum."""
        if not self._slips():
            return value
        return max(0, value + self.random.choice((-2, -1, 1, 2)))

    def letter(self, value: str) -> str:
        """One letter read or picked."""
        if not self._slips():
            return value
        return self.random.choice(LETTERS.replace(value, ""))


def _column(problem: Problem, hand: _Hand) -> tuple[str, str]:
    left, right = problem.prompt.rstrip("=").split("+")
    width = max(len(left), len(right))
    carry, digits, steps = 0, "", []
    for a, b in zip(reversed(left.zfill(width)), reversed(right.zfill(width)), strict=True):
        total = hand.number(int(a) + int(b) + carry)
        steps.append(f"{a}+{b}{'+1' if carry else ''}={total}")
        carry = 0 if hand.forgets_carry else min(total // 10, 1)
        digits = str(total % 10) + digits
    return " ".join(steps), str(int(("1" if carry else "") + digits))


def _split(problem: Problem, hand: _Hand) -> tuple[str, str]:
    a, b = map(int, problem.prompt.rstrip("=").split("+"))
    tens = hand.number((a - a % 10) + (b - b % 10))
    units = hand.number(a % 10 + b % 10)
    total = hand.number(tens + units)
    steps = (
        f"{a - a % 10}+{b - b % 10}={tens}",
        f"{a % 10}+{b % 10}={units}",
        f"{tens}+{units}={total}",
    )
    return " ".join(steps), str(total)


def _round(problem: Problem, hand: _Hand) -> tuple[str, str]:
    a, b = map(int, problem.prompt.rstrip("=").split("+"))
    up = -b % 10
    above = hand.number(a + b + up)
    total = hand.number(max(0, above - up))
    return f"{a}+{b + up}={above} {above}-{up}={total}", str(total)


def _direct(problem: Problem, hand: _Hand) -> tuple[str, str]:
    if problem.kind == "addition":
        return "", str(hand.number(int(problem.answer)))
    return "", "".join(hand.letter(letter) for letter in problem.answer)


def _spell(problem: Problem, hand: _Hand) -> tuple[str, str]:
    written = [hand.letter(letter) for letter in problem.answer]
    return " ".join(written), "".join(written)


def _peel(problem: Problem, hand: _Hand) -> tuple[str, str]:
    rest, written, steps = problem.prompt.split()[1], "", []
    while rest:
        written += hand.letter(rest[-1])
        steps.append(f"{rest}>{written[-1]}")
        rest = rest[:-1]
    return " ".join(steps), written


def _select(problem: Problem, hand: _Hand) -> tuple[str, str]:
    rest, written, steps = problem.prompt.split()[1], "", []
    while rest:
        least = min(rest)
        written += hand.letter(least)
        steps.append(f"{rest}>{written[-1]}")
        rest = rest.replace(least, "", 1)
    return " ".join(steps), written


Habit = Callable[[Problem, _Hand], tuple[str, str]]
HABITS: dict[str, dict[str, Habit]] = {
    "addition": {"column": _column, "split": _split, "round": _round, "direct": _direct},
    "copy": {"spell": _spell, "direct": _direct},
    "reverse": {"spell": _spell, "peel": _peel, "direct": _direct},
    "sort": {"select": _select, "direct": _direct},
}


def draw_problem(spec: TraceSpec, random: Random) -> Problem:
    """One problem of this kind."""
    length = random.randint(spec.min_length, spec.max_length)
    if spec.kind == "addition":
        low, high = (0 if length == 1 else 10 ** (length - 1)), 10**length - 1
        a, b = random.randint(low, high), random.randint(low, high)
        return Problem(kind="addition", prompt=f"{a}+{b}=", answer=str(a + b))
    text = "".join(random.choices(LETTERS, k=length))
    answer = {"copy": text, "reverse": text[::-1], "sort": "".join(sorted(text))}[spec.kind]
    return Problem(kind=spec.kind, prompt=f"{spec.kind} {text}", answer=answer)


def _miscopied(answer: str, random: Random) -> str:
    if answer.isdigit():
        return str(max(0, int(answer) + random.choice((-10, -1, 1, 10))))
    place = random.randrange(len(answer))
    other = random.choice(LETTERS.replace(answer[place], ""))
    return answer[:place] + other + answer[place + 1 :]


def draw_trace(spec: TraceSpec, random: Random, *, problem: Problem | None = None) -> Trace:
    """One trace of this component: for a given problem, or a fresh one."""
    problem = problem or draw_problem(spec, random)
    name = random.choices(list(spec.habits), weights=list(spec.habits.values()))[0]
    habit = HABITS[spec.kind][name]
    counter = _Hand(random)
    steps, answer = habit(problem, counter)
    error, draw = "", random.random()
    if draw < spec.wrong_share:
        error = random.choices(list(spec.errors), weights=list(spec.errors.values()))[0]
        if error == "carry":
            forgetful = habit(problem, _Hand(random, forgets_carry=True))
            if forgetful[1] != problem.answer:
                steps, answer = forgetful
            else:
                error = "slip"
        if error == "final":
            while answer == problem.answer:
                answer = _miscopied(problem.answer, random)
        while error == "slip" and answer == problem.answer:
            steps, answer = habit(problem, _Hand(random, slip_at=random.randrange(counter.steps)))
    elif draw < spec.wrong_share + spec.unsound_share and steps:
        error, sound = "unsound", steps
        while steps == sound:
            steps, _ = habit(problem, _Hand(random, slip_at=random.randrange(counter.steps)))
    elif draw < spec.wrong_share + spec.unsound_share + spec.noise_share and steps:
        error, place = "noise", random.randrange(len(steps))
        garbled = random.choice([c for c in "0123456789+=> abcdef" if c != steps[place]])
        steps = steps[:place] + garbled + steps[place + 1 :]
    text = f"{steps} {spec.final.format(answer=answer)}" if steps else spec.final.format(answer=answer)
    return Trace(problem=problem, habit=name, error=error, text=text, answer=answer)


def draw_traces(
    specs: tuple[TraceSpec, ...], random: Random, count: int, *, heldout_fraction: float = 0.0
) -> list[Trace]:
    """Traces of the mixture whose problems lie outside the held-out share."""
    traces: list[Trace] = []
    while len(traces) < count:
        spec = random.choices(specs, weights=[spec.weight for spec in specs])[0]
        problem = draw_problem(spec, random)
        if not problem.is_heldout(heldout_fraction):
            traces.append(draw_trace(spec, random, problem=problem))
    return traces


def heldout_problems(
    spec: TraceSpec, random: Random, count: int, *, heldout_fraction: float
) -> tuple[Problem, ...]:
    """Different problems of one kind that no trace of `draw_traces` solves, at most `count` of them."""
    found: dict[str, Problem] = {}
    for _ in range(count * 1000):
        problem = draw_problem(spec, random)
        if problem.is_heldout(heldout_fraction):
            found[problem.prompt] = problem
            if len(found) == count:
                break
    return tuple(found.values())
