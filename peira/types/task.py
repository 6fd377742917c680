"""One problem, as it is read from a dataset."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation, in the roles that chat templates know."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One problem: what the policy is shown, and what a verifier needs to judge a completion.

    Example:
        >>> Task(id="sum-1", prompt=(Message(role="user", content="1 + 1 = ?"),), answer="2").answer
        '2'
    """

    id: str
    """Unique within a run; a content hash when the data names none."""
    prompt: str | tuple[Message, ...]
    """Messages are rendered by the chat template; a string is fed to the tokenizer as it is."""
    answer: Any = None
    """Reference answer in whatever JSON form the verifier reads; None when it needs none."""
    verifier: str | None = None
    """Name of the verifier that judges this task, when the data chooses one per row."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """All other columns of the row, by name; verifiers may read them, the policy never sees them."""
    source: str = ""
    """Which dataset it came from, for metrics by source."""
