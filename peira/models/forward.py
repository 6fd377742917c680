"""From token ids to features, from features to log-probs.

A causal language model is read in two halves, because the second is large and is needed at few places:

    ids [N, T] --base model--> features [N, T, F] --pick trained tokens--> [M, F]
    [M, F] --head, a chunk at a time--> logits [., V] --softmax, gather--> log-prob [M], entropy [M]

The head of most models is a matrix, with a scale or a soft cap behind it. `Network` checks on a few tokens
that this reading gives the model's own logits. A model that does more keeps its forward pass whole: its
"features" are then its logits, and the head does nothing. Slower and larger, never wrong.
"""

import inspect
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from peira.models.attention import use_grouped_attention
from peira.models.linear import linear, use_fast_linear

KEEP_BYTES = 1 << 28
"""Probabilities up to this size are kept for the backward pass; beyond it each chunk is computed twice."""
CHUNK_BYTES = 1 << 25
"""Logits are made in chunks of about this size, so that they pass through the processor's cache."""

ATTENTION_LAYERS = frozenset({"full_attention", "sliding_attention"})


class Network:
    """A causal language model as the engine uses it: features, logits, log-probs of chosen tokens."""

    def __init__(self, model: PreTrainedModel) -> None:
        model.eval()  # without dropout, or sampler and learner would disagree
        use_grouped_attention(model)
        use_fast_linear(model)
        self.model = model
        self.config = model.config.get_text_config(decoder=True)
        self.vocabulary_size = int(self.config.vocab_size)
        self._base: nn.Module = getattr(model, model.base_model_prefix, model)
        head = model.get_output_embeddings()
        self._head: nn.Linear | None = head if isinstance(head, nn.Linear) else None
        self.softcap: float | None = getattr(self.config, "final_logit_softcapping", None)
        self.scale = _logit_scale(self.config)
        takes = inspect.signature(self._base.forward).parameters
        self._takes_positions = "position_ids" in takes
        self._takes_cache = "past_key_values" in takes and "use_cache" in takes
        if self._base is model or self._head is None or not self._reading_is_exact():
            self._base, self._head = model, None

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self.model.device
        return device

    @property
    def context_tokens(self) -> int | None:
        """Positions the model was built for; None when its configuration names no limit."""
        for name in ("max_position_embeddings", "n_positions", "max_seq_len"):
            value = getattr(self.config, name, None)
            if isinstance(value, int) and value > 0:
                return value
        return None

    @property
    def cacheable(self) -> bool:
        """Whether every layer is attention over columns, so that rows and prompts can share a cache."""
        types = getattr(self.config, "layer_types", None) or ["full_attention"]
        recurrent = getattr(self.model, "_is_stateful", False)
        shares_layers = bool(getattr(self.config, "num_kv_shared_layers", 0))
        chunked = getattr(self.config, "attention_chunk_size", None) is not None
        return (
            self._takes_positions
            and self._takes_cache
            and set(types) <= ATTENTION_LAYERS
            and not (recurrent or shares_layers or chunked)
        )

    def _reading_is_exact(self) -> bool:
        ids = torch.arange(1, 9, device=self.device)[None] % self.vocabulary_size
        with torch.no_grad():
            own = self.model(input_ids=ids, use_cache=False).logits.float()
            read = self.logits(self.features(ids))
        tolerance = 1e-4 if self.model.dtype == torch.float32 else 2e-2
        return read.shape == own.shape and bool((read - own).abs().max() <= tolerance * (1 + own.abs().max()))

    def features(
        self,
        token_ids: Int[Tensor, "N T"],
        *,
        position_ids: Int[Tensor, "N T"] | None = None,
        mask: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "N T F"]:
        """What the head reads, at every token.

        Sequences are right-padded; without a cache, what stands behind a row's end changes nothing before it.

        Args:
            token_ids: Tokens to compute.
            position_ids: Position of each within its sequence; needed when a cache precedes them.
            mask: True at columns (the cache's, then these) that hold a token; None when all do.
            cache: What was computed before; receives these tokens.
        """
        options: dict[str, Any] = {"use_cache": cache is not None} if self._takes_cache else {}
        if cache is not None:
            options |= {"past_key_values": cache, "position_ids": position_ids}
        if mask is not None:
            options["attention_mask"] = mask
        output = self._base(input_ids=token_ids, **options)
        features: Tensor = output.logits if self._head is None else output.last_hidden_state
        return features

    def logits(self, features: Float[Tensor, "*B F"]) -> Float[Tensor, "*B V"]:
        """The model's logits in float32."""
        if self._head is None:
            return features.float()
        raw = self._head(features).float()
        if self.scale != 1.0:
            raw = raw * self.scale
        return raw if self.softcap is None else torch.tanh(raw / self.softcap) * self.softcap

    def token_logprobs(
        self, features: Float[Tensor, "M F"], targets: Int[Tensor, "M"], *, temperature: float
    ) -> tuple[Float[Tensor, "M"], Float[Tensor, "M"]]:
        """Log-prob of each target and entropy of each distribution, at this temperature, in float32.

        Gradient flows through the log-probs alone; the entropy is detached.
        """
        if self._head is None:
            scores = features.float() / temperature
            logprobs = torch.log_softmax(scores, dim=-1)
            entropy = -(logprobs.detach().exp() * logprobs.detach()).nan_to_num(0.0).sum(-1)
            return logprobs.gather(1, targets[:, None])[:, 0], entropy
        return _HeadLogprobs.apply(  # type: ignore[no-any-return]
            features, self._head.weight, self._head.bias, targets, self.scale, self.softcap, temperature
        )


def _logit_scale(config: Any) -> float:
    """Cohere multiplies logits, Granite divides them."""
    if isinstance(getattr(config, "logit_scale", None), float):
        return float(config.logit_scale)
    if isinstance(getattr(config, "logits_scaling", None), int | float):
        return 1.0 / float(config.logits_scaling)
    return 1.0


class _HeadLogprobs(torch.autograd.Function):
    """Head, softmax and gather in one, so that logits exist one chunk at a time.

    With x = features W' + b, s = softcap(scale x) / temperature and p = softmax(s):

        logprob = s[target] - logsumexp(s)          d logprob / d s = onehot(target) - p

    Backward needs p. It is kept if it fits in `KEEP_BYTES`, else made again. Rows whose incoming gradient is
    zero (clipped tokens, advantage zero) cost nothing.
    """

    @staticmethod
    def _scores(features: Tensor, weight: Tensor, bias: Tensor | None, scale: float, softcap: float | None,
                temperature: float) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Scores of a chunk, and the soft cap's derivative where there is one."""
        scores = linear(features, weight, bias).float()
        slope = None
        if softcap is not None:
            scores = torch.tanh_(scores.mul_(scale / softcap))
            slope = 1 - scores.square()
            scores.mul_(softcap)
        elif scale != 1.0:
            scores.mul_(scale)
        return scores if temperature == 1.0 else scores.div_(temperature), slope

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        scale: float,
        softcap: float | None,
        temperature: float,
    ) -> tuple[Tensor, Tensor]:
        count, vocabulary = features.shape[0], weight.shape[0]
        logprobs = features.new_empty(count, dtype=torch.float32)
        entropy = torch.empty_like(logprobs)
        wanted = any(ctx.needs_input_grad)
        keep = wanted and softcap is None and count * vocabulary * 4 <= KEEP_BYTES
        kept = features.new_empty((count, vocabulary), dtype=torch.float32) if keep else None
        step = max(1, CHUNK_BYTES // (4 * vocabulary))
        for start in range(0, count, step):
            chunk = slice(start, min(start + step, count))
            scores, _ = _HeadLogprobs._scores(features[chunk], weight, bias, scale, softcap, temperature)
            top = scores.amax(1, keepdim=True)
            chosen = scores.gather(1, targets[chunk, None])
            shifted = scores.sub_(top)
            p = torch.exp(shifted) if kept is None else torch.exp(shifted, out=kept[chunk])
            total = p.sum(1, keepdim=True)
            # entropy = log(total) - sum(p * shifted) / total; a score of -inf has p = 0 and adds nothing
            shifted.clamp_min_(torch.finfo(torch.float32).min)
            mean = torch.bmm(p[:, None, :], shifted[:, :, None])[:, 0] / total
            p.div_(total)
            logprobs[chunk] = (chosen - top - total.log())[:, 0]
            entropy[chunk] = (total.log() - mean)[:, 0]
        if wanted:
            ctx.save_for_backward(features, weight, bias, targets, kept)
            ctx.settings = (scale, softcap, temperature)
        ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
        features, weight, bias, targets, kept = ctx.saved_tensors
        scale, softcap, temperature = ctx.settings
        live = grad.nonzero()[:, 0]
        everywhere = live.numel() == grad.numel()
        grad_features = torch.zeros_like(features)
        grad_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        grad_bias = torch.zeros_like(bias) if bias is not None and ctx.needs_input_grad[2] else None
        step = max(1, CHUNK_BYTES // (4 * weight.shape[0]))
        for start in range(0, live.numel(), step):
            stop = min(start + step, live.numel())
            rows = slice(start, stop) if everywhere else live[start:stop]
            slope = None
            if kept is not None:
                p = kept[rows]
            else:
                scores, slope = _HeadLogprobs._scores(
                    features[rows], weight, bias, scale, softcap, temperature
                )
                p = torch.softmax(scores, dim=1)
            # p becomes the gradient of the raw logits: g * (onehot - p) * scale / temperature * slope
            p.neg_()
            p[torch.arange(stop - start, device=p.device), targets[rows]] += 1
            p.mul_((grad[rows] * (scale / temperature))[:, None])
            if slope is not None:
                p.mul_(slope)
            p = p.to(weight.dtype)
            grad_features[rows] = p @ weight
            if grad_weight is not None:
                grad_weight.addmm_(p.t(), features[rows])
            if grad_bias is not None:
                grad_bias += p.sum(0)
        return grad_features, grad_weight, grad_bias, None, None, None, None
