"""Key/value caches: what attention remembers of the tokens before.

Three shapes of memory, each a list of layers that `transformers` models call `update` on:

    `new_prefill_cache`   grows by concatenation; holds a prompt while it is computed once
    `PromptCache`         a group's prompt behind every row of the group, differentiable (the learner)
    `RowCache`            preallocated, written in place, rows come and go (the sampler)

Sliding-window layers keep everything here too: the mask alone shuts out what lies outside the window. That
costs memory and buys one layout for all layers, in which the distance of two columns is that of two tokens.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer

KeysValues = tuple[Float[Tensor, "N K L D"], Float[Tensor, "N K L E"]]


def new_prefill_cache() -> Cache:
    """An empty cache whose layers all keep the whole sequence."""
    return Cache(layer_class_to_replicate=DynamicLayer)


def contents(cache: Cache) -> list[KeysValues]:
    """Keys and values of every layer."""
    return [(layer.keys, layer.values) for layer in cache.layers]


class _PromptLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers is untyped
    is_sliding = False

    def __init__(self, keys: Tensor, values: Tensor, rows: Tensor, columns: Tensor | None) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self._rows, self._columns = rows, columns
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to prepare: the prompt is there from the start."""

    def _behind_every_row(self, states: Tensor) -> Tensor:
        if self._columns is None:
            return states[self._rows]
        # advanced indices around a slice move to the front: [N, P, K, D]
        return states[self._rows[:, None], :, self._columns].transpose(1, 2)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Prompt and continuation side by side; nothing is stored, since nothing comes later."""
        assert self.keys is not None
        assert self.values is not None
        return (
            torch.cat([self._behind_every_row(self.keys), key_states], dim=2),
            torch.cat([self._behind_every_row(self.values), value_states], dim=2),
        )

    def get_seq_length(self) -> int:
        assert self.keys is not None
        return int(self.keys.shape[2])

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        return -1


class PromptCache(Cache):  # type: ignore[misc]
    """Each group's prompt, computed once, behind every row of the group; gradients of the rows add up in it.

    Prompts of unequal length are moved so that all end in the same column, where the continuations begin:

        prompt of row 0   . . a b c | x x x
        prompt of row 1   d e f g h | y y .      dots are masked
    """

    def __init__(
        self, prompts: Sequence[KeysValues], lengths: Int[Tensor, "P"], rows: Int[Tensor, "N"]
    ) -> None:
        """Build from right-padded prompts.

        Args:
            prompts: Keys and values by layer, with a row per prompt.
            lengths: Tokens of each prompt before padding.
            rows: Which prompt each row continues.
        """
        width = int(lengths.max())
        columns = None
        self.prompt_mask: Tensor | None = None
        """True at prompt columns that hold a token; None when all do."""
        if int(lengths.min()) < width:
            shifted = torch.arange(width, device=lengths.device) - (width - lengths[rows])[:, None]  # [N, W]
            self.prompt_mask = shifted >= 0
            columns = shifted.clamp_min(0)
        super().__init__(layers=[_PromptLayer(keys, values, rows, columns) for keys, values in prompts])


class _Columns:
    """Where the rows of a `RowCache` live: rows [0, rows), columns [low, end); `end` is written next."""

    def __init__(self) -> None:
        self.rows = self.low = self.end = 0


class _RowLayer(CacheLayerMixin):  # type: ignore[misc]
    is_sliding = False

    def __init__(self, columns: _Columns, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.columns = columns
        self.keys, self.values = keys, values
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to prepare: the memory was allocated by `RowCache`."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Write one column in place; return views of the living part."""
        assert self.keys is not None
        assert self.values is not None
        at = self.columns
        self.keys[: at.rows, :, at.end] = key_states[:, :, 0]
        self.values[: at.rows, :, at.end] = value_states[:, :, 0]
        living = slice(at.low, at.end + 1)
        return self.keys[: at.rows, :, living], self.values[: at.rows, :, living]

    def get_seq_length(self) -> int:
        return self.columns.end - self.columns.low

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        return -1


class RowCache(Cache):  # type: ignore[misc]
    """Memory of the rows that are being decoded, allocated once and written in place.

    All rows end in the same column, so one slice write serves a step and the distance between columns is the
    distance between tokens. A row that finishes is overwritten by the last one; a row that arrives is copied
    in so that it ends where the others do:

        column      0 1 2 3 4 5 6 7 8
        row 0       . . a b c x x x           low = 1, end = 8: the next token of every row goes to column 8
        row 1       . d e f g h y y
        row 2       . . . . i j k l           just admitted, four tokens long

    Columns left of a row's first token are masked, and must be finite all the same: 0 times NaN is NaN.
    When the columns run out, the living part moves back to the left edge, into a larger allocation if needed.
    """

    def __init__(self, max_rows: int, *, growth: int = 128) -> None:
        super().__init__(layers=[])
        self._max_rows, self._growth = max_rows, growth
        self._capacity = 0
        self._at = _Columns()
        self.lengths: list[int] = []
        """Tokens of each living row."""

    def _update_low(self) -> None:
        self._at.rows = len(self.lengths)
        self._at.low = self._at.end - max(self.lengths, default=0)

    def _relocate(self, end: int, capacity: int) -> None:
        """Move the living columns so that they end at `end`, in an allocation of `capacity` columns."""
        at = self._at
        old, width = slice(at.low, at.end), at.end - at.low
        new = slice(end - width, end)
        for layer in self.layers:
            for name in ("keys", "values"):
                source = getattr(layer, name)
                living = source[: at.rows, :, old]
                if capacity > self._capacity:
                    target = source.new_zeros(source.shape[0], source.shape[1], capacity, source.shape[3])
                    setattr(layer, name, target)
                else:
                    target, living = source, living.clone()  # the ranges may overlap
                target[: at.rows, :, new] = living
        self._capacity = max(capacity, self._capacity)
        at.end = end
        self._update_low()

    def _make_room(self, longest: int) -> None:
        """Make sure that `longest` columns lie left of the end and one column right of it is free."""
        longest = max(longest, self._at.end - self._at.low)
        if self._at.end >= longest and self._at.end < self._capacity:
            return
        # moving left is worth it only if it frees a good part of the allocation
        enough = longest + min(self._growth, max(1, longest // 2)) <= self._capacity
        self._relocate(longest, self._capacity if enough else longest + max(self._growth, longest // 2))

    def admit(
        self,
        states: Sequence[KeysValues],
        picks: Sequence[int],
        lengths: Sequence[int],
        counts: Sequence[int],
    ) -> None:
        """Append rows that begin with a computed prompt.

        Args:
            states: Keys and values by layer of right-padded prompts.
            picks: Which prompts to use.
            lengths: Tokens of each picked prompt.
            counts: Rows that begin with each picked prompt.
        """
        if not self.layers:
            self._at.end = max(lengths)
            self._capacity = self._at.end + self._growth
            self.layers: list[_RowLayer] = [
                _RowLayer(
                    self._at,
                    *(s.new_zeros(self._max_rows, s.shape[1], self._capacity, s.shape[3]) for s in pair),
                )
                for pair in states
            ]
        self._make_room(max(lengths))
        end, first = self._at.end, len(self.lengths)
        for pick, length, count in zip(picks, lengths, counts, strict=True):
            rows, columns = slice(first, first + count), slice(end - length, end)
            for layer, (keys, values) in zip(self.layers, states, strict=True):
                layer.keys[rows, :, columns] = keys[pick, :, :length]
                layer.values[rows, :, columns] = values[pick, :, :length]
            self.lengths += [length] * count
            first += count
        self._update_low()

    def open_column(self) -> Tensor | None:
        """Get ready to write one token per row; a mask of the columns that hold tokens, None if all do."""
        self._make_room(0)
        at, device = self._at, self.layers[0].keys.device
        longest = at.end - at.low
        if min(self.lengths) == longest:
            return None
        starts = torch.tensor([longest - length for length in self.lengths], device=device)
        return torch.arange(longest + 1, device=device) >= starts[:, None]

    def close_column(self) -> None:
        """Count the token that every row has just written."""
        self._at.end += 1
        self.lengths = [length + 1 for length in self.lengths]

    def keep(self, living: Sequence[int]) -> list[int]:
        """Drop all rows but these; return the old index of each row in its new place.

        Rows stay where they are if they can; the last ones fill the holes.
        """
        order = list(range(len(living)))
        staying = set(living)
        movers = [row for row in living if row >= len(living)]
        holes = [row for row in order if row not in staying]
        if holes:
            device = self.layers[0].keys.device
            target, source = torch.tensor(holes, device=device), torch.tensor(movers, device=device)
            columns = slice(self._at.low, self._at.end)
            for layer in self.layers:
                layer.keys[target, :, columns] = layer.keys[source, :, columns]
                layer.values[target, :, columns] = layer.values[source, :, columns]
            for hole, mover in zip(holes, movers, strict=True):
                order[hole] = mover
        self.lengths = [self.lengths[row] for row in order]
        self._update_low()
        return order
