"""Tasks of rule induction: facts, examples, and new names for the things they speak of.

An isomorphic task is the same task under other names. A rule that speaks of properties and relations means
the same on it; a rule that lists things by name, or looks at how names are spelt or ordered, does not.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from peira.errors import VerifierError
from peira.types.task import Task

_FACT = re.compile(r"\s*([a-z]\w*)\s*\(([^()]*)\)\s*\.?\s*", re.ASCII)
_CONSTANT = re.compile(r"[a-z]\w*|-?\d{1,18}", re.ASCII)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Fact:
    """A ground fact without nesting.

    Example:
        >>> str(Fact.parse("colour(l1, purple)."))
        'colour(l1,purple)'
    """

    predicate: str
    arguments: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "Fact":
        """Read one fact.

        Raises:
            ValueError: it is none, or has variables, quoted atoms or nested terms.
        """
        match = _FACT.fullmatch(text)
        arguments = tuple(part.strip() for part in match[2].split(",")) if match else ()
        if match is None or not all(_CONSTANT.fullmatch(argument) for argument in arguments):
            raise ValueError(f"{text!r}: expected a ground fact such as colour(l1,purple)")
        return cls(match[1], arguments)

    @property
    def indicator(self) -> str:
        """`colour/2`"""
        return f"{self.predicate}/{len(self.arguments)}"

    def renamed(self, names: Mapping[str, str]) -> "Fact":
        """The fact with other constants; names are whole arguments, so p1 is no part of p10."""
        return Fact(self.predicate, tuple(names.get(argument, argument) for argument in self.arguments))

    def __str__(self) -> str:
        return f"{self.predicate}({','.join(self.arguments)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Induction:
    """Find a rule for the target predicate from what is known and from examples."""

    background: tuple[Fact, ...]
    positive: tuple[Fact, ...]
    """Must be derived."""
    negative: tuple[Fact, ...]
    """Must not be derived; same predicate as `positive`."""
    objects: frozenset[str]
    """Constants that are things and get new names; all others are attributes and keep theirs."""
    opposite: str = ""
    """Predicate of the other label, whose facts an extensional check shows; empty for none."""

    @classmethod
    def of(cls, task: Task) -> "Induction":
        """Read `task.info["induction"]`.

        Raises:
            VerifierError: something is missing, or renaming could not tell a rule from a list of names.
        """
        value = task.info.get("induction")
        place = f"task {task.id!r}: info.induction"
        if not isinstance(value, Mapping):
            raise VerifierError(
                f"{place} = {value!r}: expected an object with background, positive, negative"
            )
        induction = cls(
            background=_facts(place, value, "background"),
            positive=_facts(place, value, "positive"),
            negative=_facts(place, value, "negative"),
            objects=frozenset(_texts(place, value, "objects")),
            opposite=value.get("opposite") or "",
        )
        induction._check(place, _texts(place, value, "attributes") if "attributes" in value else ())
        return induction

    @property
    def target(self) -> str:
        """`toxic/1`"""
        return self.positive[0].indicator

    @property
    def floor(self) -> float:
        """What a rule that derives nothing gets when partial success counts: the share of negatives."""
        return len(self.negative) / (len(self.positive) + len(self.negative))

    @property
    def constants(self) -> frozenset[str]:
        """Every constant of the task."""
        facts = (*self.background, *self.positive, *self.negative)
        return frozenset(argument for fact in facts for argument in fact.arguments)

    def renamed(self, names: Mapping[str, str], *, in_use: Collection[str] = ()) -> "Induction":
        """The same task with new names for its objects.

        Args:
            in_use: further words that no new name may be: those of the prompt and of the rule to be judged.

        Raises:
            ValueError: not a one-to-one map of all objects onto names that occur nowhere yet. A permutation
                of the old names is refused too: it can leave a list of names right.
        """
        images = list(names.values())
        if set(names) != self.objects or len(set(images)) != len(images):
            raise ValueError("names: expected one new name for each object, all different")
        known = self.constants | self.objects | set(in_use)
        known |= {fact.predicate for fact in (*self.background, *self.positive)} | {self.opposite}
        if taken := sorted(known.intersection(images)):
            raise ValueError(f"names: {taken[0]!r} is in use: expected names that occur nowhere yet")
        return Induction(
            background=tuple(fact.renamed(names) for fact in self.background),
            positive=tuple(fact.renamed(names) for fact in self.positive),
            negative=tuple(fact.renamed(names) for fact in self.negative),
            objects=frozenset(images),
            opposite=self.opposite,
        )

    def fresh_names(self, rng: Random) -> dict[str, str]:
        """Random names for all objects: equally long, and telling nothing of the old ones or their order."""
        names: dict[str, str] = {}
        taken: set[str] = set(self.constants)
        for thing in sorted(self.objects):
            while (name := "".join(rng.choices(_LETTERS, k=12))) in taken:
                pass
            taken.add(name)
            names[thing] = name
        return names

    def _check(self, place: str, attributes: Sequence[str]) -> None:
        if not self.positive or not self.negative:
            raise VerifierError(f"{place}: positive, negative: expected at least one example of each")
        for fact in (*self.positive, *self.negative):
            if fact.indicator != self.target:
                raise VerifierError(f"{place}: {fact}: expected an example of {self.target}")
            if not self.objects.issuperset(fact.arguments):
                raise VerifierError(
                    f"{place}: {fact}: expected objects as arguments; attributes keep their names, and a "
                    "rule that lists them would pass"
                )
        if both := sorted(self.objects.intersection(attributes)):
            raise VerifierError(
                f"{place}: {both[0]!r} is an object and an attribute: expected one of the two"
            )
        labels = {self.target.split("/")[0], self.opposite}
        if given := next((fact for fact in self.background if fact.predicate in labels), None):
            raise VerifierError(f"{place}: background: {given} tells a label: expected none there")
        if set(self.positive) & set(self.negative):
            raise VerifierError(f"{place}: an example is positive and negative")


def _texts(place: str, value: Mapping[str, Any], key: str) -> list[str]:
    texts = value.get(key)
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise VerifierError(f"{place}.{key} = {texts!r}: expected a list of texts")
    return list(texts)


def _facts(place: str, value: Mapping[str, Any], key: str) -> tuple[Fact, ...]:
    try:
        return tuple(Fact.parse(text) for text in _texts(place, value, key))
    except ValueError as error:
        raise VerifierError(f"{place}.{key}: {error}") from error
