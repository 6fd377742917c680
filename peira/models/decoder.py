"""One token at a time for many rows at once, with a cache or, where a model allows none, without.

    prefill(sequences)  ->  features of each sequence's last token, and what is needed to go on from it
    admit(prompt, n)        n rows now begin with it
    step(tokens)        ->  every row takes its token; features of those tokens
    keep(rows)              the others leave

Rows are numbered 0, 1, ... in order of admission, until `keep` renumbers them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from peira.models.cache import KeysValues, RowCache, contents, new_prefill_cache
from peira.models.forward import Network


@dataclass(frozen=True, slots=True)
class Prompt:
    """A sequence computed once, from which any number of rows can begin."""

    token_ids: tuple[int, ...]
    feature: Float[Tensor, "F"]
    """Of its last token."""
    states: list[KeysValues] | None
    """Keys and values by layer, shared by all prompts of one prefill."""
    index: int
    """Which row of `states`."""


class Decoder(Protocol):
    """Holds the rows that are being continued."""

    def prefill(self, sequences: Sequence[tuple[int, ...]]) -> list[Prompt]:
        """Compute these sequences together."""
        ...

    def admit(self, prompts: Sequence[Prompt], counts: Sequence[int]) -> None:
        """Let `counts[i]` new rows begin with `prompts[i]`."""
        ...

    def step(self, tokens: Sequence[int]) -> Float[Tensor, "N F"]:
        """Append one token to every row; give the features of those tokens."""
        ...

    def keep(self, living: Sequence[int]) -> list[int]:
        """Drop all rows but these (ascending); give the old index of each row in its new place."""
        ...


def new_decoder(network: Network, *, max_rows: int, new_tokens: int) -> Decoder:
    """The cached decoder where the model's layers allow it, the recomputing one otherwise.

    Args:
        network: The model.
        max_rows: Rows that may live at once.
        new_tokens: The most that any row will be given.
    """
    if not network.cacheable:
        return RecomputingDecoder(network)
    return CachedDecoder(network, RowCache(max_rows, growth=min(new_tokens, 256)))


def _right_padded(sequences: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    width = max(map(len, sequences))
    ids = torch.tensor([[*s, *(s[-1:] * (width - len(s)))] for s in map(tuple, sequences)], device=device)
    return ids, torch.tensor([len(s) - 1 for s in sequences], device=device)


class CachedDecoder:
    """Keys and values of every row stay in a `RowCache`; a step computes one token per row."""

    def __init__(self, network: Network, cache: RowCache) -> None:
        self._network, self._cache = network, cache

    def prefill(self, sequences: Sequence[tuple[int, ...]]) -> list[Prompt]:
        """Compute these sequences together, right-padded: attention looks back, so padding needs no mask."""
        ids, last = _right_padded(sequences, self._network.device)
        cache = new_prefill_cache()
        features = self._network.features(ids, cache=cache)
        ends = features[torch.arange(len(sequences), device=ids.device), last]
        states = contents(cache)
        return [Prompt(s, ends[i], states, i) for i, s in enumerate(sequences)]

    def admit(self, prompts: Sequence[Prompt], counts: Sequence[int]) -> None:
        """Copy each prompt's keys and values behind its new rows."""
        for prompt, count in zip(prompts, counts, strict=True):
            assert prompt.states is not None
            self._cache.admit(prompt.states, [prompt.index], [len(prompt.token_ids)], [count])

    def step(self, tokens: Sequence[int]) -> Float[Tensor, "N F"]:
        """Write one column and read what lies before it."""
        device = self._network.device
        mask = self._cache.open_column()
        positions = torch.tensor(self._cache.lengths, device=device)[:, None]
        ids = torch.tensor(tokens, device=device)[:, None]
        features = self._network.features(ids, position_ids=positions, mask=mask, cache=self._cache)
        self._cache.close_column()
        return features[:, 0]

    def keep(self, living: Sequence[int]) -> list[int]:
        """Fill the holes with the last rows."""
        return self._cache.keep(living)


class RecomputingDecoder:
    """For layers that remember in another form (recurrent, chunked): every step computes whole sequences.

    The cost grows with the square of the length. It needs nothing of the model but causality.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._rows: list[list[int]] = []

    def _ends(self, sequences: Sequence[Sequence[int]]) -> Tensor:
        ids, last = _right_padded(sequences, self._network.device)
        return self._network.features(ids)[torch.arange(len(sequences), device=ids.device), last]

    def prefill(self, sequences: Sequence[tuple[int, ...]]) -> list[Prompt]:
        """Compute these sequences together; only their ends are remembered."""
        ends = self._ends(sequences)
        return [Prompt(s, ends[i], None, i) for i, s in enumerate(sequences)]

    def admit(self, prompts: Sequence[Prompt], counts: Sequence[int]) -> None:
        """Begin rows with the prompts' tokens."""
        for prompt, count in zip(prompts, counts, strict=True):
            self._rows += [list(prompt.token_ids) for _ in range(count)]

    def step(self, tokens: Sequence[int]) -> Float[Tensor, "N F"]:
        """Append, and compute everything again."""
        for row, token in zip(self._rows, tokens, strict=True):
            row.append(token)
        return self._ends(self._rows)

    def keep(self, living: Sequence[int]) -> list[int]:
        """Forget the other rows."""
        self._rows = [self._rows[row] for row in living]
        return list(living)
