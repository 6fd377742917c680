"""An engine without a network: canned completions, recorded calls, and a policy to check by hand.

The policy is a table of logits with one row per position (modulo `POSITIONS`) and one column per token; what
came before does not matter. Log-probs, gradients, steps, weight sync and checkpoints are real, so the trainer
and every test above this floor run against it as they run against a model.
"""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from peira.algorithms.batch import BackwardResult, TokenLoss, TrainBatch
from peira.engines.protocol import Capabilities, SyncReceipt, check_batch, check_requests
from peira.errors import CheckpointError, EngineError
from peira.models.draw import Uniforms, draw
from peira.models.stopping import StopRule
from peira.types.rollout import Completion, SampleRequest, StopReason
from peira.types.tokenizer import Tokenizer

POSITIONS = 16
STATE_FILE = "scripted.pt"

Script = Callable[[SampleRequest, int], Sequence[int]]
"""(request, sample index) -> the tokens this sample is to have, prefix included."""


@dataclass(frozen=True, slots=True)
class Call:
    """One verb that was asked for."""

    verb: str
    argument: Any
    policy_version: int


class _Row:
    def __init__(self, request: SampleRequest, index: int, rule: StopRule) -> None:
        self.request, self.index, self.rule = request, index, rule
        self.uniforms = Uniforms(request.seed, index)
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.stop_reason: StopReason | None = None

    @property
    def position(self) -> int:
        """Of the next token, in the whole sequence."""
        return len(self.request.prompt_ids) + len(self.request.prefix_ids) + len(self.tokens)


class ScriptedEngine:
    """Says what it is told, or draws from its table; learns either way.

    Canned completions get an end token when they do not end with one, and are cut at `max_tokens`. Their
    log-probs are the table's at the request's temperature; top-k and top-p do not touch them.
    """

    def __init__(
        self,
        *,
        vocabulary_size: int,
        end_ids: Sequence[int],
        completions: Sequence[Sequence[int]] | Script | None = None,
        tokenizer: Tokenizer | None = None,
        context_tokens: int | None = None,
        seed: int = 0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        max_grad_norm: float | None = 1.0,
    ) -> None:
        """Make the table.

        Args:
            vocabulary_size: Columns of the table.
            end_ids: Ids that end a completion; the first is appended to canned ones.
            completions: Given in turn to the samples of each request, or a function; None draws.
            tokenizer: Decodes for stop strings.
            context_tokens: Refuse what is longer; None for no limit.
            seed: Of the table's first values.
            betas: Of AdamW.
            eps: Of AdamW.
            weight_decay: Decoupled.
            max_grad_norm: Clip the gradient to this norm; None never clips.
        """
        self.calls: list[Call] = []
        """Every verb asked for, in order."""
        self._vocabulary_size, self._end_ids = vocabulary_size, tuple(end_ids)
        self._tokenizer, self._context_tokens = tokenizer, context_tokens
        if completions is None or callable(completions):
            self._script: Script | None = completions
        else:
            canned = [tuple(ids) for ids in completions]
            self._script = lambda request, index: canned[index % len(canned)]
        generator = torch.Generator().manual_seed(seed)
        self._table = torch.randn(POSITIONS, vocabulary_size, generator=generator).requires_grad_()
        self._sampling_table = self._table.detach().clone()
        self._optimizer = torch.optim.AdamW(
            [self._table], lr=0.0, betas=betas, eps=eps, weight_decay=weight_decay
        )
        self._max_grad_norm = max_grad_norm
        self._version = self._sampling_version = 0
        self._aborts = 0
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        """The sampler has a table of its own, so it may lag behind the learner."""
        return Capabilities(partial_rollouts=True, in_flight_update=True)

    @property
    def policy_version(self) -> int:
        """Optimizer steps taken."""
        return self._version

    def _record(self, verb: str, argument: Any = None) -> None:
        if self._closed:
            raise EngineError(f"{verb}: engine = closed: expected an open one; build another engine")
        self.calls.append(Call(verb, argument, self._version))

    # ---- sampling ----

    async def sample(self, requests: Sequence[SampleRequest]) -> AsyncGenerator[Completion, None]:
        """Give canned completions, or draw from the table; as they finish."""
        self._record("sample", tuple(requests))
        check_requests(
            requests,
            vocabulary_size=self._vocabulary_size,
            context_tokens=self._context_tokens,
            can_decode=self._tokenizer is not None,
        )
        aborts = self._aborts
        rows = [
            _Row(r, i, StopRule(r.params, self._end_ids, self._tokenizer, r.prefix_ids))
            for r in requests
            for i in range(r.num_samples)
        ]
        while rows:
            if self._aborts > aborts:
                for row in rows:
                    yield self._completion(row, StopReason.ABORT)
                return
            for row in rows:
                self._next_token(row)
            for row in rows:
                if row.stop_reason is not None:
                    yield self._completion(row, row.stop_reason)
            rows = [row for row in rows if row.stop_reason is None]
            await asyncio.sleep(0)

    def _next_token(self, row: _Row) -> None:
        params, done = row.request.params, len(row.request.prefix_ids) + len(row.tokens)
        logits = self._sampling_table[row.position % POSITIONS][None].clone()
        if self._script is None:
            uniform = torch.tensor([row.uniforms.at(done)], dtype=torch.float64)
            tokens, logprobs = draw(logits, uniform, params)
            token, logprob = int(tokens[0]), float(logprobs[0])
        else:
            script = self._script(row.request, row.index)
            token = script[done] if done < len(script) else self._end_ids[0]
            scores = torch.log_softmax(logits[0] / (params.temperature or 1.0), dim=-1)
            logprob = float(scores[token]) if params.temperature > 0 else 0.0
        row.tokens.append(token)
        row.logprobs.append(logprob)
        row.stop_reason = row.rule.see(token)

    def _completion(self, row: _Row, reason: StopReason) -> Completion:
        return Completion(
            request_id=row.request.id,
            index=row.index,
            token_ids=tuple(row.tokens),
            logprobs=tuple(row.logprobs),
            stop_reason=reason,
            policy_version=self._sampling_version,
        )

    def abort(self) -> None:
        """End every running `sample` after its present token."""
        self._aborts += 1

    # ---- learning ----

    def _check(self, batch: TrainBatch, verb: str) -> None:
        check_batch(
            batch, verb=verb, vocabulary_size=self._vocabulary_size, context_tokens=self._context_tokens
        )

    def _score(self, batch: TrainBatch) -> tuple[Float[Tensor, "N T"], Float[Tensor, "N T"]]:
        scores = torch.log_softmax(self._table / batch.temperature, dim=-1)  # [POSITIONS, V]
        position = torch.arange(batch.token_ids.shape[1]) % POSITIONS
        logprobs = scores[position[None].expand_as(batch.token_ids), batch.token_ids]
        entropy = -(scores.exp() * scores).sum(dim=-1).detach()[position].expand_as(logprobs)
        return torch.where(batch.mask, logprobs, 0.0), torch.where(batch.mask, entropy, 0.0)

    async def logprobs(self, batch: TrainBatch) -> Float[Tensor, "N T"]:
        """The table's log-probs at the trained tokens."""
        self._record("logprobs", batch)
        self._check(batch, "logprobs")
        return self._score(batch)[0].detach()

    async def forward_backward(self, batch: TrainBatch, loss: TokenLoss) -> BackwardResult:
        """Add the gradient of (weights * loss).sum() to what is accumulated."""
        self._record("forward_backward", batch)
        self._check(batch, "forward_backward")
        logprobs, entropy = self._score(batch)
        total = (batch.weights[batch.mask] * loss(logprobs, batch)[batch.mask]).sum()
        value = float(total.detach())
        if not math.isfinite(value):
            raise EngineError(
                f"forward_backward: loss = {value} at policy version {self._version}: expected a finite "
                "number; look for log-probs of -inf in the batch"
            )
        if self._table.grad is None:
            self._table.grad = torch.zeros_like(self._table)
        if total.requires_grad:
            total.backward()
        return BackwardResult(loss=value, logprobs=logprobs.detach(), entropy=entropy)

    async def optim_step(self, *, lr: float) -> float:
        """One AdamW step on the table."""
        self._record("optim_step", lr)
        if self._table.grad is None:
            raise EngineError(
                f"optim_step: gradient = none at policy version {self._version}: expected one; "
                "call forward_backward first, or skip the step when there is no signal"
            )
        limit = self._max_grad_norm or math.inf
        norm = float(torch.nn.utils.get_total_norm([self._table.grad]))
        if not math.isfinite(norm):
            self._table.grad = None
            raise EngineError(
                f"optim_step: gradient norm = {norm} at policy version {self._version}: expected a finite "
                "number; the weights are as before"
            )
        torch.nn.utils.clip_grads_with_norm_([self._table], limit, torch.tensor(norm))
        self._optimizer.param_groups[0]["lr"] = lr
        self._optimizer.step()
        self._table.grad = None
        self._version += 1
        return norm

    async def sync_weights(self) -> SyncReceipt:
        """Copy the table."""
        self._record("sync_weights")
        started = time.monotonic()
        with torch.no_grad():
            self._sampling_table.copy_(self._table)
        self._sampling_version = self._version
        return SyncReceipt(
            policy_version=self._version,
            num_tensors=1,
            size_bytes=self._table.numel() * self._table.element_size(),
            canary_gap=float((self._sampling_table - self._table.detach()).abs().max()),
            duration_s=time.monotonic() - started,
        )

    # ---- disk ----

    async def save(self, path: Path) -> None:
        """Write the table and the optimizer's state."""
        self._record("save", path)
        state = {
            "table": self._table.detach(),
            "optimizer": self._optimizer.state_dict(),
            "policy_version": self._version,
        }
        torch.save(state, path / STATE_FILE)

    async def load(self, path: Path) -> None:
        """Restore a `save`."""
        self._record("load", path)
        try:
            state = torch.load(path / STATE_FILE, weights_only=True)
            with torch.no_grad():
                self._table.copy_(state["table"])
        except (OSError, RuntimeError, KeyError) as error:
            raise CheckpointError(
                f"load: {path / STATE_FILE}: expected a file that `save` of the same table wrote ({error}); "
                "choose another checkpoint"
            ) from error
        self._table.grad = None
        self._optimizer.load_state_dict(state["optimizer"])
        self._version = state["policy_version"]

    async def close(self) -> None:
        """Refuse further verbs; idempotent."""
        self._closed = True
