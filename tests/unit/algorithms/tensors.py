"""Small builders shared by the tests of this room."""

from typing import Any

import torch
from torch import Tensor

from peira.algorithms.batch import TrainBatch


def every(like: Tensor) -> Tensor:
    """A mask that keeps everything."""
    return torch.ones_like(like, dtype=torch.bool)


def train_batch(**columns: Any) -> TrainBatch:
    """A batch whose columns are given, or zero: `mask` says how large it is."""
    mask: Tensor = columns.pop("mask")
    n, t = mask.shape
    zeros = torch.zeros(n, t)
    defaults: dict[str, Any] = {
        "token_ids": torch.zeros(n, t, dtype=torch.int64),
        "lengths": torch.full((n,), t),
        "prompt_lengths": torch.zeros(n, dtype=torch.int64),
        "group": torch.zeros(n, dtype=torch.int64),
        "advantages": zeros,
        "weights": mask.float() / mask.sum().clamp(min=1),
        "sampling_logprobs": zeros,
        "old_logprobs": zeros,
        "policy_version": torch.zeros(n, dtype=torch.int64),
        "temperature": 1.0,
    }
    return TrainBatch(mask=mask, **(defaults | columns))
