"""Where the steps of a completion end, and what a verifier thought of each."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from peira.errors import VerifierError
from peira.types.scored import ScoredGroup, ScoredRollout
from peira.types.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTable:
    """Steps of every rollout, group after group; columns of tokens count the completion's own, from 0."""

    rewards: Float[Tensor, "N S"]
    """0 where there is no step."""
    present: Bool[Tensor, "N S"]
    ends: Int[Tensor, "N S"]
    """Column of each step's last token."""
    group: Int[Tensor, "N"]
    tokens: Bool[Tensor, "N T"]
    """Which columns are tokens of the completion."""


def step_table(
    scored: Sequence[ScoredGroup], tokenizer: Tokenizer, *, channel: str, separator: str
) -> StepTable:
    """The step scores of one channel with the tokens that they speak of.

    Steps are the parts of the completion's text between separators, each with the separator behind it; parts
    of white space alone belong to the step before. A rollout without a reward or step scores has no steps.

    Raises:
        VerifierError: a verdict has another number of step scores than the completion has steps.
    """
    members = [member for group in scored for member in group.rollouts]
    steps = [_steps(member, tokenizer, channel, separator) for member in members]
    width = max((len(own) for own in steps), default=0)
    rewards = torch.zeros(len(members), width)
    present = torch.zeros(len(members), width, dtype=torch.bool)
    ends = torch.zeros(len(members), width, dtype=torch.int64)
    for row, own in enumerate(steps):
        for column, (end, score) in enumerate(own):
            rewards[row, column], ends[row, column], present[row, column] = score, end, True
    lengths = torch.tensor([member.rollout.num_tokens for member in members])
    return StepTable(
        rewards=rewards,
        present=present,
        ends=ends,
        group=torch.tensor([p for p, group in enumerate(scored) for _ in group.rollouts]),
        tokens=torch.arange(int(lengths.max())) < lengths[:, None],
    )


def _steps(
    member: ScoredRollout, tokenizer: Tokenizer, channel: str, separator: str
) -> list[tuple[int, float]]:
    """(last token's column, score) of each step."""
    verdict = member.verdicts.get(channel)
    if member.reward is None or verdict is None or not verdict.step_scores:
        return []
    turn = member.rollout.turns[-1]
    places = step_ends(turn.text, separator)
    if len(places) != len(verdict.step_scores):
        raise VerifierError(
            f"verifiers: {channel}: step_scores = {len(verdict.step_scores)} of them: expected one for each "
            f"of the {len(places)} steps that algorithm.process.separator = {separator!r} cuts "
            f"{turn.text[:200]!r} into; cut in the verifier as `peira.pipeline.steps.step_ends` does"
        )
    ids = turn.completion.token_ids
    ends, column = [], 0
    for place in places[:-1]:
        low, high = column, len(ids) - 1  # the first column whose text reaches the place
        while low < high:
            middle = (low + high) // 2
            if len(tokenizer.decode(ids[: middle + 1])) >= place:
                high = middle
            else:
                low = middle + 1
        column = low
        ends.append(column)
    ends.append(len(ids) - 1)  # the end token belongs to the last step
    return list(zip(ends, verdict.step_scores, strict=True))


def step_ends(text: str, separator: str) -> list[int]:
    r"""Where each step ends in the text, the separators behind it included; the last at its end.

    Example:
        >>> step_ends("a\n\nbc\n\n\n\nd\n\n", "\n\n")
        [3, 9, 12]
    """
    ends: list[int] = []
    place = 0
    parts = text.split(separator)
    for index, part in enumerate(parts):
        place += len(part) + (len(separator) if index < len(parts) - 1 else 0)
        if part.strip() or not ends:
            ends.append(place)
        else:
            ends[-1] = place
    return ends
