"""Rows that come, grow, move and go, against lists in plain Python."""

import random

import pytest
import torch
from torch import Tensor

from peira.models.cache import KeysValues, PromptCache, RowCache

LAYERS, HEADS, WIDTH = 2, 2, 3


def state(value: float, layer: int) -> Tensor:
    """What a token with this number leaves behind in a layer, [K, D]."""
    return torch.full((HEADS, WIDTH), value + layer / 10)


def prompts(numbers: list[list[float]]) -> list[KeysValues]:
    """Right-padded keys and values of several prompts; values are the negative keys."""
    width = max(map(len, numbers))
    layers = []
    for layer in range(LAYERS):
        keys = torch.full((len(numbers), HEADS, width, WIDTH), 999.0)
        for row, tokens in enumerate(numbers):
            for column, token in enumerate(tokens):
                keys[row, :, column] = state(token, layer)
        layers.append((keys, -keys))
    return layers


def step(cache: RowCache, tokens: list[float], rows: list[list[float]]) -> None:
    """Write a token per row; what comes back must be the rows, aligned right, masked left."""
    mask = cache.open_column()
    longest = max(map(len, rows)) + 1
    for layer_index in range(LAYERS):
        new = torch.stack([state(token, layer_index) for token in tokens])[:, :, None]
        keys, values = cache.update(new, -new, layer_index)
        assert keys.shape == (len(rows), HEADS, longest, WIDTH)
        for row, (old, token) in enumerate(zip(rows, tokens, strict=True)):
            expected = torch.stack([state(t, layer_index) for t in [*old, token]], dim=1)
            assert torch.equal(keys[row, :, longest - len(old) - 1 :], expected)
            assert torch.equal(values[row, :, longest - len(old) - 1 :], -expected)
        assert torch.isfinite(keys).all()
    if mask is None:
        assert len(set(map(len, rows))) == 1
    else:
        assert mask.tolist() == [[c >= longest - len(row) - 1 for c in range(longest)] for row in rows]
    cache.close_column()
    for row, token in zip(rows, tokens, strict=True):
        row.append(token)


@pytest.mark.parametrize("seed", range(12))
def test_rows_keep_their_past_through_any_history(seed: int) -> None:
    chance = random.Random(seed)
    cache, rows = RowCache(6, growth=chance.choice([1, 2, 5, 40])), []
    fresh = iter(range(1, 10_000))
    for _ in range(60):
        free = 6 - len(rows)
        if free and (not rows or chance.random() < 0.3):
            numbers = [[float(next(fresh)) for _ in range(chance.randint(1, 9))] for _ in range(2)]
            pick, count = chance.randrange(2), chance.randint(1, free)
            cache.admit(prompts(numbers), [pick], [len(numbers[pick])], [count])
            rows += [list(numbers[pick]) for _ in range(count)]
        step(cache, [float(next(fresh)) for _ in rows], rows)
        if chance.random() < 0.4:
            living = [i for i in range(len(rows)) if chance.random() < 0.6]
            order = cache.keep(living)
            assert sorted(order) == living
            rows = [rows[i] for i in order]


def test_memory_follows_the_longest_row_and_not_the_steps_taken() -> None:
    # one short row after another: the columns move back to the left edge instead of growing
    cache = RowCache(1, growth=4)
    for start in range(50):
        cache.admit(prompts([[float(start)] * 3]), [0], [3], [1])
        rows = [[float(start)] * 3]
        for token in range(4):
            step(cache, [float(token)], rows)
        cache.keep([])
    assert cache.layers[0].keys.shape[2] <= 3 + 4 + 8


def test_a_prompt_stands_behind_each_row_of_its_group_and_collects_their_gradient() -> None:
    keys, values = prompts([[1.0, 2.0, 3.0], [4.0]])[0]
    keys.requires_grad_()
    cache = PromptCache([(keys, values)], torch.tensor([3, 1]), torch.tensor([0, 0, 1]))
    own = torch.zeros(3, HEADS, 2, WIDTH)
    seen, _ = cache.update(own, own, 0)
    assert seen.shape == (3, HEADS, 5, WIDTH)
    assert seen[:, 0, :3, 0].tolist() == [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [4.0, 4.0, 4.0]]
    assert cache.prompt_mask is not None
    assert cache.prompt_mask.tolist() == [[True] * 3, [True] * 3, [False, False, True]]
    seen[:, :, :3][cache.prompt_mask[:, None].expand(3, HEADS, 3)].sum().backward()
    # two rows read the first prompt, one reads the only token of the second, nobody its padding
    assert keys.grad is not None
    assert keys.grad[:, 0, :, 0].tolist() == [[2.0, 2.0, 2.0], [1.0, 0.0, 0.0]]


def test_prompts_of_one_length_need_no_mask() -> None:
    cache = PromptCache(prompts([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([2, 2]), torch.tensor([0, 1, 1]))
    assert cache.prompt_mask is None
    assert cache.get_seq_length() == 2
