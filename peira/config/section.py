"""The base of every config class, and the one form of range error."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.functional_validators import BeforeValidator


class Section(BaseModel):
    """A frozen group of settings that refuses unknown keys.

    A class may name a `shorthand`: the field that a scalar given for the whole section sets, so that
    `engine: ray` means `engine: {kind: ray}` and `model: my/folder` means `model: {name: my/folder}`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

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
