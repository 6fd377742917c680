"""Rules to be found from examples, at growing size, for the `prolog` verifier.

A world of boxes with items in them. A hidden rule says which boxes are `chosen`; the policy sees the facts
and labelled boxes and answers with a rule in Prolog. Any rule that separates the examples and speaks of
properties alone is right, the hidden one among them.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

ATTRIBUTES = {
    "colour": ("red", "green", "blue", "yellow"),
    "shape": ("cube", "ball", "cone", "ring"),
    "size": ("small", "medium", "large"),
}
MAX_LEVEL = 5
_TRIES = 2000

Item = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Items with their attributes, and which of them touch."""

    items: tuple[Item, ...]
    touching: frozenset[tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """There are such items in the box, touching if asked, and no item of the unwanted kind."""

    wanted: tuple[Mapping[str, str], ...]
    """For each item variable, the attributes it must have."""
    touching: bool = False
    """The first two variables must touch."""
    unwanted: Mapping[str, str] | None = None

    def holds(self, box: Box) -> bool:
        """Whether the rule chooses a box, read as Prolog reads it: two variables may be one item."""
        if self.unwanted is not None and any(_fits(item, self.unwanted) for item in box.items):
            return False
        return any(
            all(_fits(box.items[i], want) for i, want in zip(chosen, self.wanted, strict=True))
            and (not self.touching or chosen[:2] in box.touching)
            for chosen in product(range(len(box.items)), repeat=len(self.wanted))
        )

    def __str__(self) -> str:
        variables = "IJK"[: len(self.wanted)]
        goals = [
            goal
            for variable, want in zip(variables, self.wanted, strict=True)
            for goal in (f"has(X, {variable})", *(f"{name}({variable}, {want[name]})" for name in want))
        ]
        if self.touching:
            goals.append("touching(I, J)")
        if self.unwanted is not None:
            kind = ", ".join(f"{name}(U, {value})" for name, value in self.unwanted.items())
            goals.append(f"\\+ (has(X, U), {kind})")
        return f"chosen(X) :- {', '.join(goals)}."


def induction_task(rng: random.Random, level: int) -> tuple[str, str, dict[str, Any]]:
    """Prompt, reference rule and info of one task.

    Level 1 asks for one attribute, 2 for two of one item, 3 for two items that touch, 4 for an item with two
    attributes and the absence of another kind, 5 for all of it. Boxes, items and examples grow as well.
    """
    for _ in range(_TRIES):
        rule = _rule(rng, level)
        boxes = [_box(rng, rule, level) for _ in range(40 * level)]
        chosen = [box for box in boxes if rule.holds(box)]
        others = [box for box in boxes if not rule.holds(box)]
        count = 3 + level
        if len(chosen) >= count and len(others) >= count:
            return _written(rng, rule, level, chosen[:count], others[:count])
    raise ValueError(f"level = {level}: no balanced task was found")  # practically impossible


def _rule(rng: random.Random, level: int) -> Rule:
    match level:
        case 1:
            return Rule(wanted=(_kind(rng, 1),))
        case 2:
            return Rule(wanted=(_kind(rng, 2),))
        case 3:
            return Rule(wanted=(_kind(rng, 1), _kind(rng, 1)), touching=True)
        case 4:
            return Rule(wanted=(_kind(rng, 2),), unwanted=_kind(rng, 1))
        case _:
            return Rule(wanted=(_kind(rng, 1), _kind(rng, 2)), touching=True, unwanted=_kind(rng, 2))


def _kind(rng: random.Random, count: int) -> dict[str, str]:
    return {name: rng.choice(ATTRIBUTES[name]) for name in rng.sample(sorted(ATTRIBUTES), count)}


def _box(rng: random.Random, rule: Rule, level: int) -> Box:
    """A random box; every other one gets items of the wanted kinds, so that chosen boxes are not rare."""
    items = [
        {name: rng.choice(values) for name, values in ATTRIBUTES.items()}
        for _ in range(rng.randint(2, 2 + level))
    ]
    if rng.random() < 0.5:
        for place, want in zip(rng.sample(range(len(items)), k=len(rule.wanted)), rule.wanted, strict=True):
            items[place] |= want
    pairs = [(i, j) for i in range(len(items)) for j in range(len(items)) if i < j and rng.random() < 0.5]
    return Box(
        items=tuple(items),
        touching=frozenset(pair for i, j in pairs for pair in ((i, j), (j, i)))
        if level >= 3
        else frozenset(),
    )


def _fits(item: Mapping[str, str], kind: Mapping[str, str]) -> bool:
    return all(item[name] == value for name, value in kind.items())


def _written(
    rng: random.Random, rule: Rule, level: int, chosen: list[Box], others: list[Box]
) -> tuple[str, str, dict[str, Any]]:
    boxes = [*((box, True) for box in chosen), *((box, False) for box in others)]
    rng.shuffle(boxes)
    numbers = iter(rng.sample(range(1, 1000), sum(len(box.items) for box, _ in boxes)))
    facts: list[str] = []
    objects: list[str] = []
    examples: dict[bool, list[str]] = {True: [], False: []}
    for index, (box, label) in enumerate(boxes, start=1):
        names = [f"i{next(numbers)}" for _ in box.items]
        objects += [f"b{index}", *names]
        examples[label].append(f"b{index}")
        for name, item in zip(names, box.items, strict=True):
            facts.append(f"has(b{index}, {name})")
            facts += [f"{attribute}({name}, {value})" for attribute, value in item.items()]
        facts += [f"touching({names[i]}, {names[j]})" for i, j in sorted(box.touching)]
    lines = "\n".join(f"{fact}." for fact in facts)
    prompt = (
        f"These facts are known:\n\n{lines}\n\n"
        f"These boxes are chosen: {', '.join(examples[True])}.\n"
        f"These boxes are not, they are `passed_over`: {', '.join(examples[False])}.\n\n"
        "Find the rule. Write `chosen(X)` in Prolog, by properties and not by listing boxes or items, "
        "between [RULE] and [/RULE]."
    )
    induction = {
        "background": facts,
        "positive": [f"chosen({name})" for name in examples[True]],
        "negative": [f"chosen({name})" for name in examples[False]],
        "objects": objects,
        "attributes": [value for values in ATTRIBUTES.values() for value in values],
        "opposite": "passed_over",
    }
    return prompt, f"[RULE]{rule}[/RULE]", {"induction": induction, "level": level}
