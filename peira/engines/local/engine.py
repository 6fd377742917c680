"""Sampler and learner in one process: the default engine, and the one to debug in.

         learner --------- named parameters -------- sampler
            |    the same tensors (zero copy), or a     |
            |    copy on another device or in           |
            |    another dtype, compared after copying  |
            '------ canary: fixed token ids, scored ----'
                    by each on its own path

`sync_weights` copies what has to be copied, compares every tensor by name, and then lets both sides score the
canary: the learner in whole sequences, the sampler token by token through its cache, as when it draws.
"""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from peira.algorithms.batch import BackwardResult, TokenLoss, TrainBatch
from peira.config.engine import LocalEngineConfig
from peira.engines.local.learner import Learner
from peira.engines.local.sampler import Sampler
from peira.engines.protocol import Capabilities, SyncReceipt, check_requests
from peira.errors import CheckpointError, EngineError, SyncError
from peira.models.decoder import new_decoder
from peira.models.forward import Network
from peira.models.hf import save_model
from peira.models.quiet import no_progress_bars
from peira.models.tokenizer import HFTokenizer
from peira.types.rollout import Completion, SampleRequest
from peira.types.tokenizer import Tokenizer

LEARNER_FILE = "learner.pt"
TOLERANCE_BY_DTYPE = {torch.float32: 1e-3, torch.float64: 1e-3}
NARROW_TOLERANCE = 0.25
"""Nats by which bfloat16 and float16 log-probs may differ between two orders of summation."""
CANARY_PROMPTS = (4, 7)
CANARY_STEPS = 3


class LocalEngine:
    """Any `transformers` causal language model, on one device (or two, with a `sampler_model`).

    A model in bfloat16 or float16 is trained through float32 master weights and float32 Adam moments.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        end_ids: Sequence[int],
        tokenizer: Tokenizer | None = None,
        config: LocalEngineConfig | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        max_grad_norm: float | None = 1.0,
        sampler_model: PreTrainedModel | None = None,
    ) -> None:
        """Take over a loaded model; nothing is allocated for training before the first step.

        Args:
            model: The learner's model, on its device and in its dtype.
            end_ids: Ids that end a completion.
            tokenizer: Decodes for stop strings (without one they are refused); saved beside the weights.
            config: The engine's settings; `device` was applied by whoever loaded the model.
            betas: Of AdamW.
            eps: Of AdamW.
            weight_decay: Decoupled, on matrices only.
            max_grad_norm: Clip the whole gradient to this norm; None never clips.
            sampler_model: A second model of the same architecture that samples; None shares the weights.
        """
        self._config = config or LocalEngineConfig()
        if self._config.threads is not None:
            torch.set_num_threads(self._config.threads)
        network = Network(model)
        self._learner: Learner | None = Learner(
            network,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            max_grad_norm=max_grad_norm,
            share_prompts=self._config.share_prompts,
            gradient_checkpointing=self._config.gradient_checkpointing,
        )
        self._shared = sampler_model is None
        self._sampling_network = network if sampler_model is None else Network(sampler_model.eval())
        self._tokenizer = tokenizer
        self._sampler = Sampler(
            self._sampling_network, end_ids=end_ids, tokenizer=tokenizer, max_rows=self._config.max_rows
        )
        self._sampler_version: int | None = 0 if self._shared else None
        self._aborts = 0

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do beyond the verbs."""
        return Capabilities(partial_rollouts=True)

    @property
    def policy_version(self) -> int:
        """Optimizer steps taken since the run began."""
        return self._open("policy_version").policy_version

    @property
    def model(self) -> PreTrainedModel:
        """The learner's model."""
        return self._open("model").network.model

    def _open(self, verb: str) -> Learner:
        if self._learner is None:
            raise EngineError(f"{verb}: engine = closed: expected an open one; build another engine")
        return self._learner

    # ---- sampling ----

    async def sample(self, requests: Sequence[SampleRequest]) -> AsyncGenerator[Completion, None]:
        """Draw each request's completions; give them as they finish."""
        learner = self._open("sample")
        if self._sampler_version != learner.policy_version:
            raise EngineError(
                f"sample: policy version = {self._sampler_version} in the sampler and "
                f"{learner.policy_version} in the learner: expected the same; call sync_weights after "
                "optim_step and load"
            )
        check_requests(
            requests,
            vocabulary_size=self._sampling_network.vocabulary_size,
            context_tokens=self._sampling_network.context_tokens,
            can_decode=self._tokenizer is not None,
        )
        aborts = self._aborts
        completions = self._sampler.sample(
            requests, version=lambda: self._sampler_version or 0, aborted=lambda: self._aborts > aborts
        )
        try:
            async for completion in completions:
                yield completion
        finally:
            await completions.aclose()

    def abort(self) -> None:
        """End every running `sample` after its present token; what is unfinished comes out as ABORT."""
        self._aborts += 1

    # ---- learning ----

    async def logprobs(self, batch: TrainBatch) -> Float[Tensor, "N T"]:
        """Learner log-probs of the batch's trained tokens without gradient; on the CPU."""
        await asyncio.sleep(0)
        return self._open("logprobs").logprobs(batch)

    async def forward_backward(self, batch: TrainBatch, loss: TokenLoss) -> BackwardResult:
        """Add the gradient of (weights * loss).sum() to what is accumulated."""
        await asyncio.sleep(0)
        return self._open("forward_backward").forward_backward(batch, loss)

    async def optim_step(self, *, lr: float) -> float:
        """Apply and clear the accumulated gradient; return its norm before clipping."""
        await asyncio.sleep(0)
        return self._open("optim_step").optim_step(lr=lr)

    # ---- the proof that both hold the same weights ----

    async def sync_weights(self) -> SyncReceipt:
        """Make the sampler equal to the learner and prove it on a canary."""
        learner = self._open("sync_weights")
        started = time.monotonic()
        await asyncio.sleep(0)
        num_tensors, size_bytes = self._carry(learner)
        gap = self._canary_gap(learner)
        limit = self._tolerance()
        if not gap <= limit:  # NaN fails too
            reason = (
                "the sampler computes with other weights, or engine.sync_tolerance is too small for "
                f"{self._sampling_network.model.dtype}"
                if math.isfinite(gap)
                else "the policy's log-probs are not finite: the last update moved the weights too far; "
                "lower optimizer.lr"
            )
            raise SyncError(
                f"sync_weights: canary gap = {gap:.3g} nats between learner (policy version "
                f"{learner.policy_version}) and sampler (last proven: {self._sampler_version}): expected at "
                f"most {limit:g}; {reason}"
            )
        self._sampler_version = learner.policy_version
        return SyncReceipt(
            policy_version=learner.policy_version,
            num_tensors=num_tensors,
            size_bytes=size_bytes,
            canary_gap=gap,
            duration_s=time.monotonic() - started,
        )

    @torch.no_grad()
    def _carry(self, learner: Learner) -> tuple[int, int]:
        """Copy every tensor that is not shared, compare all of them; count them and their bytes."""
        source = dict(learner.network.model.state_dict(keep_vars=True))
        target = dict(self._sampling_network.model.state_dict(keep_vars=True))
        if source.keys() != target.keys():
            names = sorted(source.keys() ^ target.keys())
            raise SyncError(
                f"sync_weights: {len(names)} tensors on one side only, first {names[0]!r}: expected the same "
                "names in learner and sampler; build both from the same folder"
            )
        for name, tensor in source.items():
            held = target[name]
            if held.data_ptr() == tensor.data_ptr() and held.device == tensor.device:
                continue
            if held.shape != tensor.shape:
                raise SyncError(
                    f"sync_weights: {name} = shape {tuple(held.shape)} in the sampler: expected "
                    f"{tuple(tensor.shape)}; build both from the same folder"
                )
            held.copy_(tensor)
            if not torch.equal(held, tensor.to(device=held.device, dtype=held.dtype)):
                raise SyncError(
                    f"sync_weights: {name}: differs after copying; the sampler's memory is not writable"
                )
        return len(source), sum(t.numel() * t.element_size() for t in target.values())

    @torch.inference_mode()
    def _canary_gap(self, learner: Learner) -> float:
        """Largest difference of log-probs on fixed token ids, each side on the path it works with."""
        vocabulary = learner.network.vocabulary_size
        sequences = [
            tuple((7919 * (row + 1) * (i + 1) + 31 * i) % vocabulary for i in range(length + CANARY_STEPS))
            for row, length in enumerate(CANARY_PROMPTS)
        ]
        decoder = new_decoder(self._sampling_network, max_rows=len(sequences), new_tokens=CANARY_STEPS)
        prompts = decoder.prefill([s[:-CANARY_STEPS] for s in sequences])
        decoder.admit(prompts, [1] * len(prompts))
        features = torch.stack([prompt.feature for prompt in prompts])
        sampled = []
        for i in range(CANARY_STEPS):
            scores = torch.log_softmax(self._sampling_network.logits(features), dim=-1).cpu()
            tokens = [s[len(s) - CANARY_STEPS + i] for s in sequences]
            sampled.append(scores.gather(1, torch.tensor(tokens)[:, None])[:, 0])
            if i + 1 < CANARY_STEPS:
                features = decoder.step(tokens)
        # the learner: whole sequences, right-padded, in one pass
        device, width = learner.network.device, max(map(len, sequences))
        ids = torch.tensor([s + (0,) * (width - len(s)) for s in sequences], device=device)
        features = learner.network.features(ids[:, :-1])
        tails = [slice(len(s) - CANARY_STEPS, len(s)) for s in sequences]
        own, _ = learner.network.token_logprobs(
            torch.cat([features[row, t.start - 1 : t.stop - 1] for row, t in enumerate(tails)]),
            torch.cat([ids[row, t] for row, t in enumerate(tails)]),
            temperature=1.0,
        )
        differences = own.cpu() - torch.stack(sampled).t().flatten()
        return float(differences.abs().max().nan_to_num(torch.inf))

    def _tolerance(self) -> float:
        if self._config.sync_tolerance is not None:
            return self._config.sync_tolerance
        dtypes = {self._sampling_network.model.dtype, self.model.dtype}
        return max(TOLERANCE_BY_DTYPE.get(dtype, NARROW_TOLERANCE) for dtype in dtypes)

    # ---- disk ----

    async def save(self, path: Path) -> None:
        """Write weights, tokenizer files and learner state into an existing empty folder."""
        learner = self._open("save")
        await asyncio.sleep(0)
        tokenizer = self._tokenizer if isinstance(self._tokenizer, HFTokenizer) else None
        with no_progress_bars():
            save_model(learner.network.model, path, tokenizer=tokenizer)
        torch.save(learner.state(), path / LEARNER_FILE)

    async def load(self, path: Path) -> None:
        """Restore a `save`; the next step equals the step that followed it. Sync before sampling again."""
        learner = self._open("load")
        await asyncio.sleep(0)
        if not (path / LEARNER_FILE).is_file():
            raise CheckpointError(
                f"load: {path / LEARNER_FILE}: expected a file that `save` wrote; choose another checkpoint"
            )
        model = learner.network.model
        try:
            stored: dict[str, Any] = torch.load(
                path / LEARNER_FILE, map_location=model.device, weights_only=True
            )
            with no_progress_bars():
                fresh = type(model).from_pretrained(path, dtype=model.dtype, local_files_only=True)
            _copy_weights(fresh, model)
            learner.restore(stored)
        except (OSError, KeyError, RuntimeError, ValueError) as error:
            raise CheckpointError(
                f"load: {path}: expected the weights and learner state of this model ({error}); "
                "choose another checkpoint"
            ) from error
        self._sampler_version = None

    async def close(self) -> None:
        """Let go of both models; idempotent."""
        if self._learner is not None:
            self._learner = None
            del self._sampler, self._sampling_network


@torch.no_grad()
def _copy_weights(source: PreTrainedModel, target: PreTrainedModel) -> None:
    """In place, so that whoever holds the tensors (optimizer, sampler) keeps holding the right ones."""
    given, held = source.state_dict(), target.state_dict(keep_vars=True)
    if given.keys() != held.keys():
        raise KeyError(f"{sorted(given.keys() ^ held.keys())[0]} on one side only")
    for name, tensor in held.items():
        tensor.copy_(given[name])
