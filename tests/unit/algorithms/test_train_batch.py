import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.algorithms.tensors import train_batch


def batch_of(rows):
    """Rows of (group, prompt length, completion length) as a padded batch with distinct numbers."""
    lengths = torch.tensor([prompt + own for _, prompt, own in rows])
    width = int(lengths.max())
    column = torch.arange(width)
    prompts = torch.tensor([prompt for _, prompt, _ in rows])
    return train_batch(
        mask=(column >= prompts[:, None]) & (column < lengths[:, None]),
        token_ids=torch.arange(len(rows) * width).reshape(len(rows), width),
        lengths=lengths,
        prompt_lengths=prompts,
        group=torch.tensor([group for group, _, _ in rows]),
        advantages=torch.rand(len(rows), width),
        reference_logprobs=torch.rand(len(rows), width),
        other_reference_logprobs=torch.rand(len(rows), width, 2),
    )


def test_select_keeps_order_and_trims_columns():
    batch = batch_of([(0, 2, 3), (0, 2, 1), (1, 1, 6)])
    part = batch.select(torch.tensor([1, 0]))
    assert part.lengths.tolist() == [3, 5]
    assert torch.equal(part.token_ids, batch.token_ids[[1, 0], :5])
    assert torch.equal(part.reference_logprobs, batch.reference_logprobs[[1, 0], :5])
    assert torch.equal(part.other_reference_logprobs, batch.other_reference_logprobs[[1, 0], :5])
    assert part.mismatch_weights is None


ROWS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), min_size=1, max_size=4).flatmap(
    lambda groups: st.lists(st.integers(1, 5), min_size=len(groups), max_size=len(groups)).map(
        lambda sizes: [
            (g, prompt, own + i % 3)
            for g, ((prompt, own), size) in enumerate(zip(groups, sizes, strict=True))
            for i in range(size)
        ]
    )
)


@settings(deadline=None, max_examples=80)
@given(ROWS, st.integers(1, 60))
def test_splitting_keeps_every_row_in_order_and_within_the_budget(rows, max_tokens):
    batch = batch_of(rows)
    pieces = batch.split(max_tokens)
    assert torch.cat([piece.lengths for piece in pieces]).tolist() == batch.lengths.tolist()
    assert sum(float(piece.weights.sum()) for piece in pieces) == pytest.approx(1.0)
    for piece in pieces:
        own = piece.lengths - piece.prompt_lengths
        prompts = {int(g): int(p) for g, p in zip(piece.group, piece.prompt_lengths, strict=True)}
        cost = piece.num_sequences * int(own.max()) + sum(prompts.values())
        assert cost <= max_tokens or piece.num_sequences == 1
