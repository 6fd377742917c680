"""Draws completions: many rows at once, each as if it were alone.

    requests --prefill: each prompt once--> prompts --admit: a row per sample, while rows are free-->
        rows --step: one token each--> draw --> stop? --yes--> Completion, the row leaves
                    ^___________________________________no______|

The event loop gets its turn after every step, so verifiers can judge what is finished while the rest goes on.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from peira.models.decoder import Prompt, new_decoder
from peira.models.draw import Uniforms, draw
from peira.models.forward import Network
from peira.models.stopping import StopRule
from peira.types.rollout import Completion, SampleRequest, StopReason
from peira.types.tokenizer import Tokenizer

PREFILL_TOKENS = 4096
"""Prompts are computed together up to this many tokens, padding included."""


class _Row:
    """One completion in the making."""

    def __init__(self, request: SampleRequest, index: int, rule: StopRule) -> None:
        self.request, self.index, self.rule = request, index, rule
        self.uniforms = Uniforms(request.seed, index)
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.stop_reason: StopReason | None = None

    def next_uniform(self) -> float:
        """For the position counted from the start of the completion, prefix included."""
        return self.uniforms.at(len(self.request.prefix_ids) + len(self.tokens))

    def take(self, token: int, logprob: float) -> None:
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.stop_reason = self.rule.see(token)


class _Waiting:
    """A request whose samples have not all begun."""

    def __init__(self, request: SampleRequest) -> None:
        self.request = request
        self.sequence = (*request.prompt_ids, *request.prefix_ids)
        self.begun = 0
        self.prompt: Prompt | None = None

    @property
    def left(self) -> int:
        return self.request.num_samples - self.begun


class Sampler:
    """Continuous batching over a `Network`."""

    def __init__(
        self, network: Network, *, end_ids: Sequence[int], tokenizer: Tokenizer | None, max_rows: int
    ) -> None:
        self._network, self._tokenizer, self._max_rows = network, tokenizer, max_rows
        self._end_ids = tuple(end_ids)

    async def sample(
        self, requests: Sequence[SampleRequest], *, version: Callable[[], int], aborted: Callable[[], bool]
    ) -> AsyncGenerator[Completion, None]:
        """Give completions as they finish; `aborted` is asked between steps."""
        batch = _Batch(self._network, requests, self._end_ids, self._tokenizer, self._max_rows)
        while batch.busy:
            if aborted():
                for row in batch.abandon():
                    yield _completion(row, StopReason.ABORT, version())
                return
            for row in batch.advance():
                assert row.stop_reason is not None
                yield _completion(row, row.stop_reason, version())
            await asyncio.sleep(0)


def _completion(row: _Row, reason: StopReason, version: int) -> Completion:
    return Completion(
        request_id=row.request.id,
        index=row.index,
        token_ids=tuple(row.tokens),
        logprobs=tuple(row.logprobs),
        stop_reason=reason,
        policy_version=version,
    )


class _Batch:
    """The rows of one `sample` call, and the requests still waiting for rows."""

    def __init__(
        self,
        network: Network,
        requests: Sequence[SampleRequest],
        end_ids: Sequence[int],
        tokenizer: Tokenizer | None,
        max_rows: int,
    ) -> None:
        self._network, self._end_ids, self._tokenizer = network, end_ids, tokenizer
        self._waiting = deque(_Waiting(request) for request in requests)
        self._max_rows = min(max_rows, sum(request.num_samples for request in requests))
        self._decoder = new_decoder(
            network,
            max_rows=self._max_rows,
            new_tokens=max((request.params.max_tokens for request in requests), default=1),
        )
        self._rows: list[_Row] = []

    @property
    def busy(self) -> bool:
        return bool(self._rows or self._waiting)

    @torch.inference_mode()
    def advance(self) -> list[_Row]:
        """Give every row one token, fill free rows, and give back the rows that are finished."""
        finished: list[_Row] = []
        if self._rows:
            features = self._decoder.step([row.tokens[-1] for row in self._rows])
            self._draw(self._rows, self._network.logits(features))
            finished += self._drop_finished()
        if self._waiting and self._has_room():
            logits = self._admit()
            self._draw(self._rows[-logits.shape[0] :], logits)
            finished += self._drop_finished()
        return finished

    def abandon(self) -> list[_Row]:
        """Everything unfinished, samples that never began included."""
        rows = self._rows
        for waiting in self._waiting:
            rows += [self._row(waiting.request, i) for i in range(waiting.begun, waiting.request.num_samples)]
        self._rows, self._waiting = [], deque()
        return rows

    def _row(self, request: SampleRequest, index: int) -> _Row:
        rule = StopRule(request.params, self._end_ids, self._tokenizer, request.prefix_ids)
        return _Row(request, index, rule)

    def _has_room(self) -> bool:
        """A few free rows at a time: an admission costs a forward pass of its own."""
        free = self._max_rows - len(self._rows)
        left = sum(waiting.left for waiting in self._waiting)
        return not self._rows or free >= min(left, max(1, self._max_rows // 8))

    def _admit(self) -> Float[Tensor, "N V"]:
        """Begin rows for as many waiting samples as fit; logits of their first tokens."""
        free = self._max_rows - len(self._rows)
        chosen: list[_Waiting] = []
        counts: list[int] = []
        for waiting in self._waiting:
            if free == 0:
                break
            chosen.append(waiting)
            counts.append(min(free, waiting.left))
            free -= counts[-1]
        self._prefill([waiting for waiting in chosen if waiting.prompt is None])

        prompts = [waiting.prompt for waiting in chosen if waiting.prompt is not None]
        self._decoder.admit(prompts, counts)
        for waiting, count in zip(chosen, counts, strict=True):
            self._rows += [self._row(waiting.request, waiting.begun + i) for i in range(count)]
            waiting.begun += count
        while self._waiting and self._waiting[0].left == 0:
            self._waiting.popleft()
        which = torch.tensor([i for i, count in enumerate(counts) for _ in range(count)])
        logits = self._network.logits(torch.stack([prompt.feature for prompt in prompts]))
        return logits[which.to(logits.device)]

    def _prefill(self, waiting: Sequence[_Waiting]) -> None:
        """Compute each sequence once, several together, those of like length side by side.

        Requests further back that begin with the same tokens (siblings asked for one by one, later samples of
        a tree) get the same computation.
        """
        ordered = sorted({w.sequence for w in waiting}, key=len, reverse=True)
        computed: dict[tuple[int, ...], Prompt] = {}
        while ordered:
            count = max(1, PREFILL_TOKENS // len(ordered[0]))
            part, ordered = ordered[:count], ordered[count:]
            computed |= zip(part, self._decoder.prefill(part), strict=True)
        for w in self._waiting:
            w.prompt = w.prompt or computed.get(w.sequence)

    def _draw(self, rows: Sequence[_Row], logits: Float[Tensor, "N V"]) -> None:
        """Draw a token for each row; rows with equal settings are drawn together."""
        kinds: dict[tuple[float, float, int], list[int]] = {}
        for i, row in enumerate(rows):
            params = row.request.params
            kinds.setdefault((params.temperature, params.top_p, params.top_k), []).append(i)
        for members in kinds.values():
            own = logits if len(kinds) == 1 else logits[torch.tensor(members, device=logits.device)]
            uniforms = torch.tensor([rows[i].next_uniform() for i in members], dtype=torch.float64)
            tokens, logprobs = draw(own, uniforms, rows[members[0]].request.params)
            for i, token, logprob in zip(members, tokens.tolist(), logprobs.tolist(), strict=True):
                rows[i].take(token, logprob)

    def _drop_finished(self) -> list[_Row]:
        finished = [row for row in self._rows if row.stop_reason is not None]
        if finished:
            living = [i for i, row in enumerate(self._rows) if row.stop_reason is None]
            self._rows = [self._rows[i] for i in self._decoder.keep(living)]
        return finished
