"""Every sample is accounted for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peira.errors import RunError
from peira.runs.ledger import Count, DropReason, Ledger, LedgerEntry
from tests.unit.runs.records import scored_group


def test_an_entry_counts_each_rollout_once_by_its_fate() -> None:
    groups = [scored_group([1.0, 0.0, None], num_tokens=5), scored_group([1.0, 1.0], num_tokens=7)]
    right = DropReason.COLLAPSED_ALL_RIGHT
    entry = LedgerEntry.of(4, groups, [[None, None, DropReason.UNJUDGED], [right, right]])
    # 2 trained of 5 tokens, 1 unjudged of 5, 2 collapsed of 7: 10 + 5 + 14 = 29 tokens
    assert entry.trained == Count(2, 10)
    assert entry.dropped == {DropReason.UNJUDGED: Count(1, 5), right: Count(2, 14)}
    assert entry.generated == Count(5, 29)
    assert entry.gap(Count()) == Count(0, 0)


def test_fates_must_cover_every_rollout() -> None:
    with pytest.raises(ValueError, match="zip"):
        LedgerEntry.of(1, [scored_group([1.0, 0.0])], [[None]])


def test_pending_rollouts_are_carried_from_step_to_step() -> None:
    ledger = Ledger()
    ledger.add(LedgerEntry(step=1, generated=Count(8, 80), trained=Count(6, 60), pending=Count(2, 20)))
    # 2 pending + 4 generated = 5 trained + 1 pending
    ledger.add(LedgerEntry(step=2, generated=Count(4, 40), trained=Count(5, 50), pending=Count(1, 10)))
    ledger.check()
    assert ledger.total.generated == Count(12, 120)
    assert ledger.total.trained == Count(11, 110)
    assert ledger.pending == Count(1, 10)


def test_a_rollout_that_vanished_is_named_with_the_numbers() -> None:
    ledger = Ledger()
    dropped = {DropReason.UNJUDGED: Count(1, 10)}
    with pytest.raises(RunError) as error:
        ledger.add(LedgerEntry(step=7, generated=Count(8, 80), trained=Count(6, 70), dropped=dropped))
    assert str(error.value) == (
        "ledger, step 7: rollouts: pending before 0 + generated 8 = 8, "
        "but trained 6 + dropped 1 (unjudged 1) + pending 0 = 7: 1 unaccounted for"
    )
    assert ledger.entries == []


def test_tokens_must_balance_even_where_rollouts_do() -> None:
    with pytest.raises(RunError, match=r"tokens: .* = 80, but trained 81 .* = 81: 1 counted twice"):
        Ledger().add(LedgerEntry(step=1, generated=Count(8, 80), trained=Count(8, 81)))


def test_pending_rollouts_cannot_be_forgotten() -> None:
    ledger = Ledger([LedgerEntry(step=1, generated=Count(2, 4), trained=Count(), pending=Count(2, 4))])
    with pytest.raises(RunError, match="pending before 2 "):
        ledger.add(LedgerEntry(step=2, generated=Count(1, 2), trained=Count(1, 2)))


def test_a_step_is_accounted_for_once() -> None:
    entry = LedgerEntry(step=3, generated=Count(2, 4), trained=Count(2, 4))
    with pytest.raises(RunError, match="expected a step after 3"):
        Ledger([entry]).add(entry)


def test_counts_below_zero_are_refused_though_they_balance() -> None:
    dropped = {DropReason.STALE: Count(-1, 0)}
    with pytest.raises(RunError, match=r"dropped stale = Count\(rollouts=-1"):
        Ledger().add(LedgerEntry(step=1, generated=Count(1, 5), trained=Count(2, 5), dropped=dropped))


def test_check_finds_a_line_that_was_tampered_with() -> None:
    good = LedgerEntry(step=1, generated=Count(2, 4), trained=Count(2, 4))
    bad = LedgerEntry(step=2, generated=Count(2, 4), trained=Count(1, 2))
    with pytest.raises(RunError, match="step 2"):
        Ledger([good, bad]).check()


def test_a_line_of_another_shape_is_refused() -> None:
    with pytest.raises(RunError, match="expected the shape"):
        LedgerEntry.from_json({"step": 1, "rollouts": {"generated": 1}, "tokens": {}})


COUNTS = st.builds(Count, st.integers(0, 99), st.integers(0, 9999))


@given(st.lists(st.tuples(COUNTS, st.dictionaries(st.sampled_from(DropReason), COUNTS), COUNTS), max_size=8))
def test_any_history_that_balances_step_by_step_balances_as_a_whole(
    steps: list[tuple[Count, dict[DropReason, Count], Count]],
) -> None:
    """Plain running sums beside the ledger: what comes in is what the outs need, so each step balances."""
    ledger = Ledger()
    came_in = [0, 0]
    went_out = [0, 0]
    before = [0, 0]
    for step, (trained, dropped, pending) in enumerate(steps, start=1):
        outs = [
            trained.rollouts + sum(count.rollouts for count in dropped.values()),
            trained.tokens + sum(count.tokens for count in dropped.values()),
        ]
        generated = [outs[i] + (pending.rollouts, pending.tokens)[i] - before[i] for i in (0, 1)]
        if min(generated) < 0:  # this many cannot have left: let them stay pending
            pending = Count(pending.rollouts + max(0, -generated[0]), pending.tokens + max(0, -generated[1]))
            generated = [max(0, value) for value in generated]
        ledger.add(
            LedgerEntry(
                step=step, generated=Count(*generated), trained=trained, dropped=dropped, pending=pending
            )
        )
        for i in (0, 1):
            came_in[i] += generated[i]
            went_out[i] += outs[i]
        before = [pending.rollouts, pending.tokens]
    ledger.check()
    reread = Ledger(LedgerEntry.from_json(entry.to_json()) for entry in ledger.entries)
    assert reread.entries == ledger.entries
    assert [came_in[i] - went_out[i] for i in (0, 1)] == before
