"""From logits to tokens: which token is drawn, and the log-prob it was drawn with.

A token is a function of its distribution and one number u in [0, 1): the first token at which the cumulative
probability exceeds u. u depends on the request's seed, the sample's index and the token's position, and on
nothing else, so a completion is the same in any company and after any interruption. Finding that token needs
no sort and no running sum over the vocabulary: sums of blocks tell which block it lies in, and a running sum
within the block tells the rest.

Order of operations: temperature, then top-k, then top-p on what top-k left; log-probs are of what is left.
"""

import hashlib
import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from peira.errors import EngineError
from peira.types.rollout import SamplingParams

NUCLEUS_FIRST_GUESS = 256
"""A nucleus is looked for among this many tokens before the whole vocabulary is sorted."""


class Uniforms:
    """The random numbers of one completion, addressed by token position."""

    def __init__(self, seed: int, index: int) -> None:
        self._hash = hashlib.blake2b(f"{seed}/{index}/".encode(), digest_size=8)

    def at(self, position: int) -> float:
        """The number for this position, uniform in [0, 1) with 53 bits."""
        here = self._hash.copy()
        here.update(str(position).encode())
        return (int.from_bytes(here.digest(), "little") >> 11) * 2.0**-53


def draw(
    logits: Float[Tensor, "N V"], uniforms: Float[Tensor, "N"], params: SamplingParams
) -> tuple[Int[Tensor, "N"], Float[Tensor, "N"]]:
    """Tokens and their log-probs under the distribution they were drawn from; both on the CPU.

    `logits` is float32 and may be overwritten. At temperature 0 the largest logit wins and its log-prob is 0.

    Raises:
        EngineError: a row of logits holds NaN or +inf, or nothing but -inf.
    """
    if params.temperature == 0:
        best = logits.max(dim=-1)
        _require_finite(best.values)
        return best.indices.cpu(), torch.zeros(logits.shape[0])
    if params.temperature != 1.0:
        logits = logits.div_(params.temperature)
    if params.top_k > 0:
        kept = logits.topk(min(params.top_k, logits.shape[1]), dim=-1)
        return _draw_sorted(kept.values, kept.indices, uniforms, params.top_p)
    if params.top_p < 1.0:
        return _draw_nucleus(logits, uniforms, params.top_p)
    return _draw_everywhere(torch.softmax(logits, dim=-1), uniforms)


def _require_finite(values: Tensor) -> None:
    if not bool(torch.isfinite(values).all()):
        raise EngineError(
            "sample: logits = NaN or infinite: expected finite numbers; the weights have diverged, "
            "or their dtype is too narrow: lower optimizer.lr, or use model.dtype: float32"
        )


def _exact(values: Tensor) -> Tensor:
    """In float64 where the device has it, on the CPU otherwise."""
    return values.double() if values.device.type != "mps" else values.cpu().double()


def _invert(masses: Float[Tensor, "N B"], target: Float[Tensor, "N"]) -> tuple[Tensor, Tensor]:
    """First column whose running sum exceeds the target, and the sum before that column.

    Never a column of mass zero: the running sum must rise there to exceed anything. The target is held
    just below the last sum, which rounding may otherwise let it reach.
    """
    sums = masses.cumsum(dim=-1)
    last = sums[:, -1]
    target = torch.minimum(target, torch.nextafter(last, torch.zeros_like(last)))
    column = torch.searchsorted(sums, target[:, None], right=True)
    before = sums.gather(1, column) - masses.gather(1, column)
    return column[:, 0], before[:, 0]


def _draw_everywhere(p: Float[Tensor, "N V"], uniforms: Tensor) -> tuple[Tensor, Tensor]:
    rows, vocabulary = p.shape
    width = max(1, math.isqrt(vocabulary))
    whole = vocabulary // width * width
    blocks = p[:, :whole].reshape(rows, -1, width).sum(dim=-1)  # [N, V / width]
    if whole < vocabulary:
        blocks = torch.cat([blocks, p[:, whole:].sum(dim=-1, keepdim=True)], dim=1)
    masses = _exact(blocks)
    total = masses.sum(dim=-1)
    _require_finite(total)
    target = uniforms.to(masses.device) * total
    block, before = _invert(masses, target)

    columns = block[:, None].to(p.device) * width + torch.arange(width, device=p.device)  # [N, width]
    inside = p.gather(1, columns.clamp_max(vocabulary - 1)).masked_fill_(columns >= vocabulary, 0.0)
    within, _ = _invert(_exact(inside), target - before)
    chosen = inside.gather(1, within[:, None].to(p.device))[:, 0]
    tokens = block * width + within
    return tokens.cpu(), chosen.log().float().cpu()


def _draw_nucleus(logits: Tensor, uniforms: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    count = min(NUCLEUS_FIRST_GUESS, logits.shape[1])
    total = logits.logsumexp(dim=-1)
    values, indices = logits.topk(count, dim=-1)
    covered = (values - total[:, None]).exp().sum(dim=-1)
    if count < logits.shape[1] and bool((covered < top_p + 1e-6).any()):
        values, indices = logits.sort(dim=-1, descending=True)
    return _draw_sorted(values, indices, uniforms, top_p, total=total)


def _draw_sorted(
    values: Float[Tensor, "N K"],
    indices: Int[Tensor, "N K"],
    uniforms: Tensor,
    top_p: float,
    total: Float[Tensor, "N"] | None = None,
) -> tuple[Tensor, Tensor]:
    """Draw among candidates in descending order; `total` is the log-mass that `top_p` is a share of."""
    _require_finite(values[:, 0])
    total = values.logsumexp(dim=-1) if total is None else total
    masses = (_exact(values) - _exact(total)[:, None]).exp()
    if top_p < 1.0:
        # a token stays while the mass before it is below top_p; the first always does
        before = masses.cumsum(dim=-1) - masses
        stays = before < top_p
        stays[:, 0] = True
        masses = masses * stays
    left = masses.sum(dim=-1)
    rank, _ = _invert(masses, uniforms.to(masses.device) * left)
    tokens = indices.gather(1, rank[:, None].to(indices.device))[:, 0]
    chosen = masses.gather(1, rank[:, None])[:, 0]
    return tokens.cpu(), (chosen / left).log().float().cpu()
