"""Families of our own: offline, without a limit that matters, and small enough to read."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

from peira.config.data import SourceConfig
from peira.data.fingerprint import content_hash
from peira.data.induction import MAX_LEVEL, induction_task
from peira.data.prompt import PromptStyle
from peira.data.rows import nearest
from peira.data.source import TaskTable, named
from peira.errors import ConfigError
from peira.types.task import Task

DEFAULT_SIZE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What a family makes."""

    question: str
    answer: str
    info: Mapping[str, Any]


def _operands(size: int, rng: random.Random, digits: int, operator: str) -> list[tuple[int, int]]:
    """`size` different ordered pairs of numbers with exactly `digits` digits, in random order."""
    if not isinstance(digits, int) or not 1 <= digits <= 18:
        raise ValueError(f"digits = {digits!r}: expected a whole number from 1 to 18")
    low, count = 10 ** (digits - 1), 9 * 10 ** (digits - 1)
    if size > count * count:
        raise ValueError(
            f"size = {size}: expected at most {count * count}, all {operator} problems of {digits} digits"
        )
    return [(low + i // count, low + i % count) for i in rng.sample(range(count * count), size)]


def addition(size: int, rng: random.Random, *, digits: int = 2) -> list[Problem]:
    """What is 37 + 58?"""
    return [_arithmetic(a, "+", b, a + b) for a, b in _operands(size, rng, digits, "addition")]


def subtraction(size: int, rng: random.Random, *, digits: int = 2) -> list[Problem]:
    """What is 58 - 37? Differences may be negative."""
    return [_arithmetic(a, "-", b, a - b) for a, b in _operands(size, rng, digits, "subtraction")]


def multiplication(size: int, rng: random.Random, *, digits: int = 2) -> list[Problem]:
    """What is 12 * 34?"""
    return [_arithmetic(a, "*", b, a * b) for a, b in _operands(size, rng, digits, "multiplication")]


def _arithmetic(a: int, operator: str, b: int, result: int) -> Problem:
    return Problem(
        question=f"What is {a} {operator} {b}? Answer with just the number.",
        answer=str(result),
        info={"a": a, "operator": operator, "b": b},
    )


def induction(
    size: int, rng: random.Random, *, level: int = 1, max_level: int | None = None
) -> list[Problem]:
    """Find the rule for the chosen boxes, as Prolog; levels 1 to 5, in turn up to `max_level` if given."""
    last = level if max_level is None else max_level
    for name, value in (("level", level), ("max_level", last)):
        if not isinstance(value, int) or not level <= value <= MAX_LEVEL or value < 1:
            raise ValueError(
                f"{name} = {value!r}: expected a whole number from 1 to {MAX_LEVEL}, level first"
            )
    problems: dict[str, Problem] = {}
    while len(problems) < size:
        here = level + len(problems) % (last - level + 1)
        question, answer, info = induction_task(rng, here)
        problems[question] = Problem(question=question, answer=answer, info=info)
    return list(problems.values())


FAMILIES: dict[str, Callable[..., list[Problem]]] = {
    "addition": addition,
    "subtraction": subtraction,
    "multiplication": multiplication,
    "induction": induction,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticSource:
    """Tasks of one of our families; all different, so that a split by content is a split of the problems."""

    name: str
    family: str
    config: SourceConfig

    def load(self, style: PromptStyle) -> TaskTable:
        """Generate every task.

        Raises:
            ConfigError: no such family, or an option that it does not have or does not accept.
        """
        place = f"data.path = 'synthetic:{self.family}'"
        make = FAMILIES.get(self.family)
        if make is None:
            raise ConfigError(
                f"{place}: expected one of {', '.join(FAMILIES)}{nearest(self.family, FAMILIES)}"
            )
        known = [p.name for p in signature(make).parameters.values() if p.kind is Parameter.KEYWORD_ONLY]
        for option in self.config.options:
            if option not in known:
                raise ConfigError(
                    f"{place}: options.{option}: no such option{nearest(option, known)}; "
                    f"options: {', '.join(known) or 'none'}"
                )
        size = self.config.size or DEFAULT_SIZE
        try:
            problems = make(size, random.Random(self.config.seed), **self.config.options)
        except ValueError as error:
            raise ConfigError(f"{place}: {error}") from error
        places = tuple(f"synthetic:{self.family}: item {i}" for i in range(len(problems)))
        return TaskTable(
            name=self.name,
            reading=f"generated: {(make.__doc__ or self.family).splitlines()[0]}",
            tasks=tuple(self._task(p, style, at) for p, at in zip(problems, places, strict=True)),
            places=places,
            keys=tuple(content_hash(problem.question) for problem in problems),
        )

    def _task(self, problem: Problem, style: PromptStyle, place: str) -> Task:
        task = Task(
            id="",
            prompt=style.render(problem.question, {**problem.info, "question": problem.question}, place),
            answer=problem.answer,
            verifier=self.config.verifier,
            info=problem.info,
            source=self.name,
        )
        return named(task, problem.question)
