"""The base of every config class, and what can be read off a class without an instance."""

import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo
from pydantic.functional_validators import BeforeValidator


class Section(BaseModel):
    """A frozen group of settings that refuses unknown keys.

    A class may name a `shorthand`: the field that a scalar given for the whole section sets, so that
    `model: my/folder` means `model: {name: my/folder}`. In a union told apart by `kind` a scalar is the kind,
    and one that holds a colon belongs to the member that names a shorthand: `verifier: reward.py:score`.
    The text under a field is its description: it appears in docs/config.md and in error messages.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        protected_namespaces=(),
        use_attribute_docstrings=True,
        coerce_numbers_to_str=True,
    )

    shorthand: ClassVar[str | None] = None

    @model_validator(mode="before")
    @classmethod
    def _expand_shorthand(cls, value: Any) -> Any:
        if cls.shorthand is not None and isinstance(value, str):
            return {cls.shorthand: value}
        return value


def _kind_alone(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


KIND = (Field(discriminator="kind"), BeforeValidator(_kind_alone))
"""Annotation of a union of sections told apart by `kind`; a scalar alone is the kind."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a field holds besides plain values: one section, one of several by kind, or a list of those."""

    members: tuple[type[Section], ...]
    many: bool = False

    @property
    def kinds(self) -> dict[str, type[Section]]:
        """Members by kind; empty where there is only one member."""
        return {kind_of(member): member for member in self.members} if len(self.members) > 1 else {}

    def member(self, value: Any) -> type[Section] | None:
        """The section class that this mapping is read as; None when its kind is missing or unknown."""
        if len(self.members) == 1:
            return self.members[0]
        return self.kinds.get(str(value.get("kind"))) if isinstance(value, dict) else None

    def expand(self, value: Any) -> Any:
        """A scalar in its long form, one element as a list where a list belongs; else the value itself."""
        if self.many and value is not None:
            items = value if isinstance(value, list) else [value]
            return [Shape(self.members).expand(item) for item in items]
        if not isinstance(value, str) or value.startswith("${"):
            return value
        if len(self.members) == 1:
            shorthand = self.members[0].shorthand
            return value if shorthand is None else {shorthand: value}
        if ":" in value:
            for kind, member in self.kinds.items():
                if member.shorthand is not None:
                    return {"kind": kind, member.shorthand: value}
        return {"kind": value}


def kind_of(member: type[Section]) -> str:
    """The `kind` that selects this member of a union."""
    return str(member.model_fields["kind"].default)


def shape(annotation: Any) -> Shape | None:
    """The sections inside a field's annotation; None for plain values."""
    origin = get_origin(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return Shape((annotation,))
    if origin is Annotated:
        return shape(get_args(annotation)[0])
    if origin is tuple and len(get_args(annotation)) == 2 and get_args(annotation)[1] is Ellipsis:
        inner = shape(get_args(annotation)[0])
        return None if inner is None else Shape(inner.members, many=True)
    if origin in (Union, types.UnionType):
        found = [shape(part) for part in get_args(annotation)]
        members = tuple(member for inner in found if inner is not None for member in inner.members)
        return Shape(members) if members else None
    return None


def settings(cls: type[Section], prefix: str = "") -> Iterator[tuple[str, type[Section], FieldInfo]]:
    """Every setting at any depth: dotted path, the section it stands in, and its field."""
    for name, field in cls.model_fields.items():
        path = f"{prefix}{name}"
        yield path, cls, field
        inner = shape(field.annotation)
        for member in inner.members if inner is not None else ():
            yield from settings(member, f"{path}[]." if inner is not None and inner.many else f"{path}.")
