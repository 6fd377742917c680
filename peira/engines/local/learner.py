"""Turns a batch of rollouts into a gradient, and a gradient into new weights.

    prompts [P, W] --once per group--> features, and keys and values behind every row of the group
    continuations [N, S] --attend to them, positions go on from the prompt--> features
    features before trained tokens [M, F] --head, in chunks--> log-probs [N, T]
    log-probs --token loss--> [N, T] --sum(weights * loss)--> backward

Attention of each row reads its group's prompt, so the gradient of all rows flows back through the one
computation of it. Where the layers do not allow that (recurrent memory, gradient checkpointing) whole
sequences are computed. Either way the log-probs and gradients are the same numbers up to rounding.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from peira.algorithms.batch import BackwardResult, TokenLoss, TrainBatch
from peira.engines.protocol import check_batch
from peira.errors import EngineError
from peira.models.cache import PromptCache, contents, new_prefill_cache
from peira.models.forward import Network

LOGPROB_TOKENS = 8192
"""Tokens scored together where no gradient is asked for."""


class Learner:
    """Holds the weights that are trained."""

    def __init__(
        self,
        network: Network,
        *,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        max_grad_norm: float | None,
        share_prompts: bool,
        gradient_checkpointing: bool,
    ) -> None:
        self.network = network
        self.policy_version = 0
        self._settings = {"betas": betas, "eps": eps}
        self._weight_decay, self._max_grad_norm = weight_decay, max_grad_norm
        self._optimizer: torch.optim.AdamW | None = None
        self._masters: dict[str, Tensor] = {}
        self._accumulated = False
        self._checkpointed = _checkpointed_layers(network.model) if gradient_checkpointing else []
        self._share_prompts = share_prompts and network.cacheable and not gradient_checkpointing

    @torch.no_grad()
    def logprobs(self, batch: TrainBatch) -> Float[Tensor, "N T"]:
        """Log-probs without gradient, computed in parts that fit."""
        self._check(batch, "logprobs")
        scored = torch.zeros(batch.token_ids.shape)
        done = 0
        for part in batch.split(LOGPROB_TOKENS):
            rows, width = part.token_ids.shape
            if bool(part.mask.any()):
                scored[done : done + rows, :width] = self._score(self._here(part))[0].cpu()
            done += rows
        return scored

    def forward_backward(self, batch: TrainBatch, loss: TokenLoss) -> BackwardResult:
        """Add this micro-batch's gradient to what is accumulated."""
        self._check(batch, "forward_backward")
        if not any(True for _ in self.named_parameters()):
            raise EngineError(
                "forward_backward: parameters = all frozen: expected some to train; a reference only "
                "answers logprobs"
            )
        local = self._here(batch)
        with self._recomputing():
            logprobs, entropy = self._score(local)
        total = _weighted_sum(loss(logprobs, local), local)
        value = float(total.detach())
        if not torch.isfinite(total):
            raise EngineError(
                f"forward_backward: loss = {value} at policy version {self.policy_version}: expected a "
                "finite number; look for log-probs of -inf in the batch, or lower optimizer.lr"
            )
        if total.requires_grad:
            total.backward()
        self._accumulated = True
        return BackwardResult(loss=value, logprobs=logprobs.detach().cpu(), entropy=entropy.detach().cpu())

    def optim_step(self, *, lr: float) -> float:
        """Clip, step, clear."""
        if not self._accumulated:
            raise EngineError(
                f"optim_step: gradient = none at policy version {self.policy_version}: expected one; "
                "call forward_backward first, or skip the step when there is no signal"
            )
        optimizer = self._prepared_optimizer()
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        grads = [p.grad for p in parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads)
        if not torch.isfinite(norm):
            self._clear()
            raise EngineError(
                f"optim_step: gradient norm = {float(norm)} at policy version {self.policy_version}: "
                "expected a finite number; the weights are as before: lower optimizer.lr, or use "
                "model.dtype: float32"
            )
        if self._max_grad_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, self._max_grad_norm, norm)
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
        self._publish_masters()
        self._clear()
        self.policy_version += 1
        return float(norm)

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """What is trained, tied weights once."""
        return ((name, p) for name, p in self.network.model.named_parameters() if p.requires_grad)

    def state(self) -> dict[str, object]:
        """Everything but the weights that the next step depends on; loads with `weights_only`."""
        return {
            "policy_version": self.policy_version,
            "optimizer": None if self._optimizer is None else self._optimizer.state_dict(),
            "masters": dict(self._masters),
        }

    def restore(self, state: dict[str, object]) -> None:
        """Take back a `state`; the weights must be in place already."""
        self._clear()
        self._optimizer, self._masters = None, {}
        self.policy_version = int(state["policy_version"])  # type: ignore[call-overload]
        if state["optimizer"] is not None:
            optimizer = self._prepared_optimizer()
            with torch.no_grad():
                for name, master in state["masters"].items():  # type: ignore[attr-defined]
                    self._masters[name].copy_(master)
            optimizer.load_state_dict(state["optimizer"])  # type: ignore[arg-type]

    def _check(self, batch: TrainBatch, verb: str) -> None:
        network = self.network
        check_batch(
            batch, verb=verb, vocabulary_size=network.vocabulary_size, context_tokens=network.context_tokens
        )

    def _here(self, batch: TrainBatch) -> TrainBatch:
        device = self.network.device
        if device.type == "cpu":
            return batch
        tensors = {f.name: getattr(batch, f.name) for f in fields(batch)}
        moved = {name: t.to(device) for name, t in tensors.items() if isinstance(t, Tensor)}
        return replace(batch, **moved)  # type: ignore[arg-type]  # names come from fields(batch)

    # ---- log-probs ----

    @contextmanager
    def _recomputing(self) -> Iterator[None]:
        """Let layers forget their activations, which they do in training mode and then without their cache.

        So the mode lasts for one forward pass, and is set on the layers alone, not on dropout inside them.
        """
        for layer in self._checkpointed:
            layer.training = True
        try:
            yield
        finally:
            for layer in self._checkpointed:
                layer.training = False

    def _score(self, batch: TrainBatch) -> tuple[Float[Tensor, "N T"], Float[Tensor, "N T"]]:
        """Log-probs, with gradient, and entropy; 0 where the mask is False."""
        rows, columns = batch.mask.nonzero(as_tuple=True)  # the trained tokens, row by row
        rows_in_group = batch.group.unique_consecutive(return_inverse=True)[1]
        groups = int(rows_in_group[-1]) + 1
        if self._share_prompts and groups < batch.num_sequences and _prompts_agree(batch):
            features, order = self._shared_features(batch, rows_in_group, groups, rows, columns)
            rows, columns = rows[order], columns[order]
        else:
            # the last column predicts nothing
            features = self.network.features(batch.token_ids[:, :-1])[rows, columns - 1]
        values, entropies = self.network.token_logprobs(
            features, batch.token_ids[rows, columns], temperature=batch.temperature
        )
        empty = values.new_zeros(batch.token_ids.shape)
        return empty.index_put((rows, columns), values), empty.index_put((rows, columns), entropies)

    def _shared_features(
        self, batch: TrainBatch, group: Tensor, groups: int, rows: Tensor, columns: Tensor
    ) -> tuple[Float[Tensor, "M F"], Tensor]:
        """Features before each trained token, prompts computed once; and the order they come in.

        A token at column c is predicted by what stands at c - 1: in the prompt if c <= its length, else in
        the continuation.
        """
        device = batch.token_ids.device
        first = torch.searchsorted(group, torch.arange(groups, device=device))  # a row of each group
        lengths = batch.prompt_lengths[first]  # [P]
        longest = int(lengths.max())
        cache = new_prefill_cache()
        prompts = self.network.features(batch.token_ids[first, :longest], cache=cache)

        own = batch.prompt_lengths  # [N]
        width = int((batch.lengths - own).max()) - 1  # the last token predicts nothing
        in_prompt = columns <= own[rows]
        order = torch.cat([in_prompt.nonzero()[:, 0], (~in_prompt).nonzero()[:, 0]])
        parts = [prompts[group[rows[in_prompt]], columns[in_prompt] - 1]]
        if width > 0 and not bool(in_prompt.all()):
            # continuation t of row n is token own[n] + t; past the row's end anything will do
            at = own[:, None] + torch.arange(width, device=device)
            tokens = batch.token_ids.gather(1, at.clamp_max(batch.token_ids.shape[1] - 1))
            behind = PromptCache(contents(cache), lengths, group)
            mask = None
            if behind.prompt_mask is not None:
                mask = torch.cat([behind.prompt_mask, torch.ones_like(tokens, dtype=torch.bool)], dim=1)
            limit = self.network.context_tokens
            positions = at if limit is None else at.clamp_max(limit - 1)
            continued = self.network.features(tokens, position_ids=positions, mask=mask, cache=behind)
            later_rows = rows[~in_prompt]
            parts.append(continued[later_rows, columns[~in_prompt] - 1 - own[later_rows]])
        return torch.cat(parts), order

    # ---- optimizer ----

    def _prepared_optimizer(self) -> torch.optim.AdamW:
        """AdamW on the weights, or on float32 copies of weights too narrow to hold a small step.

        A step of 1e-6 on a bfloat16 weight of 0.1 rounds to nothing. Such weights get a float32 master: the
        step is taken there, with float32 moments, and rounded into the weight.
        """
        if self._optimizer is None:
            stepped: dict[str, Tensor] = {}
            for name, p in self.named_parameters():
                if p.dtype in (torch.bfloat16, torch.float16):
                    self._masters[name] = p.detach().float().clone()
                    stepped[name] = self._masters[name]
                else:
                    stepped[name] = p
            matrices = [p for p in stepped.values() if p.dim() >= 2]
            others = [p for p in stepped.values() if p.dim() < 2]
            groups = [{"params": matrices, "weight_decay": self._weight_decay}]
            if others:
                groups.append({"params": others, "weight_decay": 0.0})
            fused = self.network.device.type in ("cpu", "cuda", "mps")
            self._optimizer = torch.optim.AdamW(groups, lr=0.0, fused=fused, **self._settings)  # type: ignore[arg-type]
        for name, p in self.named_parameters():
            if name in self._masters and p.grad is not None:
                self._masters[name].grad = p.grad.float()
        return self._optimizer

    @torch.no_grad()
    def _publish_masters(self) -> None:
        for name, p in self.named_parameters():
            if name in self._masters:
                p.copy_(self._masters[name])

    def _clear(self) -> None:
        self.network.model.zero_grad(set_to_none=True)
        for master in self._masters.values():
            master.grad = None
        self._accumulated = False


def _weighted_sum(losses: Tensor, batch: TrainBatch) -> Tensor:
    """sum(weights * token_loss) where the mask is True; columns elsewhere may hold anything, NaN included."""
    return (batch.weights[batch.mask] * losses[batch.mask]).sum()


def _prompts_agree(batch: TrainBatch) -> bool:
    """Whether rows of a group really share their first `prompt_lengths` tokens, as the batch promises.

    Raises:
        EngineError: they do not; sharing them would train on tokens that were never there.
    """
    same_group = batch.group[1:] == batch.group[:-1]
    lengths = batch.prompt_lengths
    columns = torch.arange(batch.token_ids.shape[1], device=lengths.device)
    inside = columns < lengths[1:, None]
    differs = ((batch.token_ids[1:] != batch.token_ids[:-1]) & inside).any(dim=1) | (
        lengths[1:] != lengths[:-1]
    )
    wrong = (differs & same_group).nonzero()
    if wrong.numel():
        row = int(wrong[0, 0]) + 1
        raise EngineError(
            f"batch: row {row}: prompt_lengths = {int(lengths[row])}: expected the first tokens of all rows "
            f"with group {int(batch.group[row])} to be equal; give rows with other prompts another group"
        )
    return bool((lengths > 0).all())


def _checkpointed_layers(model: PreTrainedModel) -> list[GradientCheckpointingLayer]:
    """Layers that can compute themselves again in backward, made ready for it."""
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    for layer in layers:
        dropout = getattr(layer, "dropout", 0.0)
        if isinstance(dropout, float) and dropout > 0:
            raise EngineError(
                f"engine.gradient_checkpointing = True: {type(layer).__name__} has dropout = {dropout}: "
                "expected 0, since training mode would wake it; set it to 0 in the model's config.json"
            )
    return layers
