"""What is to be proved, as a task holds it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from peira.errors import VerifierError
from peira.types.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Theorem:
    """A statement that we trust: compiled in our own file, never taken from a completion."""

    name: str
    """Under which a full file must prove it."""
    statement: str
    """The proposition, in the prover's syntax, without a final dot."""
    imports: str = ""
    """Import and scope commands, repeated at the head of every file."""
    definitions: str = ""
    """What the statement speaks of; compiled with it, and imported by the completion."""

    @classmethod
    def of(cls, task: Task) -> "Theorem":
        """Read `task.info["theorem"]`.

        Raises:
            VerifierError: it is missing, lacks a name or a statement, or has something else in it.
        """
        value = task.info.get("theorem")
        known = [field.name for field in fields(cls)]
        place = f"task {task.id!r}: info.theorem"
        if not isinstance(value, Mapping):
            raise VerifierError(f"{place} = {value!r}: expected an object with name and statement")
        for key, text in value.items():
            if key not in known or not isinstance(text, str | None):
                raise VerifierError(f"{place}.{key} = {text!r}: expected texts named {', '.join(known)}")
        if not (value.get("name") and value.get("statement")):
            raise VerifierError(f"{place}: name, statement: expected both; nothing else can be proved")
        return cls(**{key: text for key, text in value.items() if text is not None})
