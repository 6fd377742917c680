"""Why each rollout of a step was trained on or dropped, in the ledger's words."""

from collections.abc import Sequence

from jaxtyping import Bool, Int
from torch import Tensor

from peira.algorithms.diagnostics import KINDS, CollapseKind
from peira.runs.ledger import DropReason
from peira.types.scored import ScoredGroup, ScoredRollout

_BY_KIND: dict[CollapseKind, DropReason] = {
    "none": DropReason.COLLAPSED_OTHER,
    "unjudged": DropReason.TOO_FEW_JUDGED,
    "all_right": DropReason.COLLAPSED_ALL_RIGHT,
    "all_wrong": DropReason.COLLAPSED_ALL_WRONG,
    "truncated": DropReason.COLLAPSED_TRUNCATED,
    "duplicate": DropReason.COLLAPSED_DUPLICATE,
}


def fates(
    scored: Sequence[ScoredGroup],
    rows: Sequence[tuple[int, int]],
    kinds: Int[Tensor, "P"],
    stale: Bool[Tensor, "P G"],
) -> list[list[DropReason | None]]:
    """For each rollout of each group why it was dropped; None for those trained on.

    Args:
        rows: (group, member) of the rollouts that went to the learner.
        kinds: why each group has no signal, as `algorithms.diagnostics.collapse_kinds` gives it.
        stale: drawn by a policy older than the settings allow.
    """
    trained = set(rows)
    return [
        [
            None
            if (p, g) in trained
            else _fate(member, DropReason.STALE if stale[p, g] else _BY_KIND[KINDS[int(kinds[p])]])
            for g, member in enumerate(group.rollouts)
        ]
        for p, group in enumerate(scored)
    ]


def _fate(member: ScoredRollout, of_group: DropReason) -> DropReason:
    if member.excluded == "masked_truncated":
        return DropReason.MASKED_TRUNCATED
    if member.reward is None:
        return DropReason.UNJUDGED
    if member.rollout.num_tokens == 0:
        return DropReason.EMPTY
    return of_group
