"""Attention in which several query heads share one key/value head without copying it.

`transformers` repeats keys and values for every query head whenever a mask is needed. With 9 query heads on 3
key/value heads, a decode step of 64 rows then spends more time copying the cache than multiplying with it.
The function here hands grouped heads to torch as they are, and is otherwise the library's own:

    one query position   [N, H, 1, D] -> [N, K, H/K, D]: the heads of a group become query positions
    more, on a CPU       torch's kernel takes grouped heads beside a mask
    more, elsewhere      the library's function
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import AttentionInterface

NAME = "peira_grouped"


def grouped_attention(
    module: nn.Module,
    query: Float[Tensor, "N H T D"],
    key: Float[Tensor, "N K L D"],
    value: Float[Tensor, "N K L E"],
    attention_mask: Bool[Tensor, "N 1 T L"] | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Float[Tensor, "N T H E"], None]:
    """`softmax(query key' * scaling) value`, heads grouped; the signature is that of `transformers`."""
    heads, shared, length = query.shape[1], key.shape[1], query.shape[2]
    plain = heads == shared or dropout > 0 or options.get("position_bias") is not None
    if attention_mask is not None and attention_mask.shape[1] != 1:
        plain = True
    if not plain and length == 1:
        folded = query.view(query.shape[0], shared, heads // shared, query.shape[3])
        if query.device.type == "cpu":
            mixed = _few_queries(folded, key, value, attention_mask, scaling)
        else:
            mixed = functional.scaled_dot_product_attention(
                folded, key, value, attn_mask=attention_mask, scale=scaling
            )
        return mixed.reshape(query.shape[0], 1, heads, value.shape[3]), None
    if not plain and attention_mask is not None and query.device.type == "cpu":
        mixed = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, scale=scaling, enable_gqa=True
        )
        return mixed.transpose(1, 2).contiguous(), None
    answer: tuple[Tensor, None] = sdpa_attention_forward(
        module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
    )
    return answer


def _few_queries(
    query: Float[Tensor, "N K Q D"],
    key: Float[Tensor, "N K L D"],
    value: Float[Tensor, "N K L E"],
    mask: Bool[Tensor, "N 1 1 L"] | None,
    scaling: float | None,
) -> Float[Tensor, "N K Q E"]:
    """Written out: for a handful of queries torch's CPU kernel takes twice as long as two products."""
    scores = torch.matmul(query, key.transpose(-1, -2))  # [N, K, Q, L]
    scores = scores * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return torch.matmul(torch.softmax(scores, dim=-1), value)


def use_grouped_attention(model: PreTrainedModel) -> None:
    """Let this model compute attention here, if it would have used torch's own; otherwise leave it alone."""
    if model.config._attn_implementation == "sdpa" and getattr(model, "_supports_attention_backend", False):
        AttentionInterface.register(NAME, grouped_attention)
        AttentionMaskInterface.register(NAME, sdpa_mask)
        model.set_attn_implementation(NAME)
