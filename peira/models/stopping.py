"""When a completion ends: an end token, a stop string, or the budget."""

from collections.abc import Sequence

from peira.types.rollout import SamplingParams, StopReason
from peira.types.tokenizer import Tokenizer


class StopRule:
    """Watches the tokens of one completion.

    Stop strings are looked for in decoded text, special tokens included, piece by piece: bytes that do not
    make a character yet wait for the next token. A stop string may begin in the prefix being continued.
    """

    def __init__(
        self,
        params: SamplingParams,
        end_ids: Sequence[int],
        tokenizer: Tokenizer | None,
        prefix_ids: Sequence[int],
    ) -> None:
        self._ends = frozenset(end_ids) | frozenset(params.stop_token_ids)
        self._strings = params.stop_strings
        self._left = params.max_tokens
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._settled = 0  # ids[:settled] are in the text; ids[context:settled] lend context to what follows
        self._context = 0
        self._tail = ""
        if self._strings:
            for token in prefix_ids:
                self._reads_stop_string(token)

    def see(self, token: int) -> StopReason | None:
        """Count this token; say why it is the last one, or None."""
        self._left -= 1
        if token in self._ends:
            return StopReason.END
        if self._strings and self._reads_stop_string(token):
            return StopReason.STOP_STRING
        return StopReason.LENGTH if self._left <= 0 else None

    def _reads_stop_string(self, token: int) -> bool:
        assert self._tokenizer is not None
        self._ids.append(token)
        before = self._tokenizer.decode(self._ids[self._context : self._settled], skip_special_tokens=False)
        text = self._tokenizer.decode(self._ids[self._context :], skip_special_tokens=False)
        finished = text.rstrip("\ufffd")
        fresh = finished[len(before) :]
        seen = self._tail + fresh
        old = len(self._tail)
        found = any(seen.find(string, max(0, old - len(string) + 1)) >= 0 for string in self._strings)
        if len(finished) == len(text):
            longest = max(map(len, self._strings))
            self._tail = seen[-(longest - 1) :] if longest > 1 else ""
            self._context, self._settled = self._settled, len(self._ids)
        return found
