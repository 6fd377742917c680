"""What the line needs from a tokenizer, so that no stage depends on a particular one."""

from collections.abc import Sequence
from typing import Protocol

from peira.types.task import Message


class Tokenizer(Protocol):
    """Text to ids once at the start, ids to text once at the end; in between only ids travel."""

    @property
    def vocabulary_size(self) -> int:
        """Ids lie in [0, vocabulary_size)."""
        ...

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Every id that ends a completion: the tokenizer's and the model's end tokens together."""
        ...

    @property
    def pad_id(self) -> int:
        """An id that is safe to feed at masked positions."""
        ...

    def render(self, prompt: str | tuple[Message, ...]) -> tuple[int, ...]:
        """Ids of a prompt: the chat template with its generation prompt for messages, plain ids for a string.

        Raises:
            ModelError: messages were given and the tokenizer has no chat template.
        """
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of these ids."""
        ...
