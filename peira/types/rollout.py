"""What the policy did: completions, turns, rollouts, groups."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from peira.types.task import Task


class StopReason(StrEnum):
    """Why a completion ended. Only LENGTH and ABORT are truncations."""

    END = "end"
    """An end-of-sequence or stop id was sampled; it is the last token of the completion."""
    STOP_STRING = "stop_string"
    """The decoded text reached a stop string; the tokens that complete it are kept."""
    LENGTH = "length"
    """The token budget ran out."""
    ABORT = "abort"
    """The sampler was told to stop; what was generated so far is kept and can be continued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one completion is drawn. A model's own `generation_config` is never consulted."""

    temperature: float = 1.0
    """0 means greedy: the largest logit, log-prob 0 under the distribution it was drawn from."""
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps the whole vocabulary."""
    max_tokens: int = 256
    """Ceiling on new tokens, the end token included."""
    stop_strings: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    """Added to the model's own end tokens."""

    @property
    def full_support(self) -> bool:
        """Whether every token could have been drawn: ratios against the learner are then exact."""
        return self.temperature > 0 and self.top_p >= 1.0 and self.top_k == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """`num_samples` completions of one prompt.

    Single turns, later turns, continued partial rollouts and hand-offs are all this one form. `seed` and the
    sample's index fix the random numbers of each completion, whatever else shares the batch.
    """

    id: str
    prompt_ids: tuple[int, ...]
    num_samples: int
    params: SamplingParams
    seed: int
    prefix_ids: tuple[int, ...] = ()
    """Tokens of the completion that exist already; sampling continues behind them and returns new ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What one sampling call produced."""

    request_id: str
    index: int
    """Which of the request's samples this is, from 0."""
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Log-prob of each token under the distribution it was drawn from: after temperature and filters."""
    stop_reason: StopReason
    policy_version: int
    """Version of the weights that drew the last token."""

    def __post_init__(self) -> None:
        if len(self.token_ids) != len(self.logprobs):
            raise ValueError(
                f"completion {self.request_id}/{self.index}: {len(self.token_ids)} tokens "
                f"but {len(self.logprobs)} logprobs"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One prompt/completion pair within a rollout. Token ids are append-only: nothing is tokenised twice."""

    prompt_ids: tuple[int, ...]
    """Tokens appended before this completion: the whole prompt in turn 0, the environment's reply later."""
    completion: Completion
    text: str
    """The completion decoded once, special tokens left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """The whole interaction for one task."""

    id: str
    """`step/task/index`: the key under which the ledger accounts for it."""
    task: Task
    turns: tuple[Turn, ...]

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All tokens in order, prompts and completions."""
        return tuple(i for turn in self.turns for i in (*turn.prompt_ids, *turn.completion.token_ids))

    @property
    def mask(self) -> tuple[bool, ...]:
        """True at the tokens that the policy generated, aligned with `token_ids`."""
        return tuple(
            flag
            for turn in self.turns
            for flag in (*(False,) * len(turn.prompt_ids), *(True,) * len(turn.completion.token_ids))
        )

    @property
    def sampling_logprobs(self) -> tuple[float, ...]:
        """Log-probs under the sampling distribution, 0 at prompt tokens, aligned with `token_ids`."""
        return tuple(
            value
            for turn in self.turns
            for value in (*(0.0,) * len(turn.prompt_ids), *turn.completion.logprobs)
        )

    @property
    def num_tokens(self) -> int:
        """Tokens the policy generated."""
        return sum(len(turn.completion.token_ids) for turn in self.turns)

    @property
    def text(self) -> str:
        """The last completion's text: what a verifier of final answers reads."""
        return self.turns[-1].text

    @property
    def stop_reason(self) -> StopReason:
        """How the last turn ended."""
        return self.turns[-1].completion.stop_reason

    @property
    def truncated(self) -> bool:
        """Whether the policy was cut off rather than finished."""
        return self.stop_reason in (StopReason.LENGTH, StopReason.ABORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The G rollouts of one task."""

    task: Task
    rollouts: tuple[Rollout, ...]


def num_tokens(groups: Sequence[Group]) -> int:
    """Tokens the policy generated in all these groups."""
    return sum(rollout.num_tokens for group in groups for rollout in group.rollouts)
