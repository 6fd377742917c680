"""What the page embeds of the rollouts."""

import base64
import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peira.plots.browser import (
    TEXT_CHARACTERS,
    compress,
    pack_questions,
    pack_rollouts,
    shortened,
    spread,
    token_lengths,
)
from peira.runs.reader import RunReader
from peira.types.rollout import Completion, StopReason, Turn
from tests.unit.plots.synthetic_run import byte_tokenizer, write_run


def unpack(text: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(text)))


def turn_of(text: str) -> Turn:
    ids = (*byte_tokenizer().encode(text).ids, 0)
    completion = Completion(
        request_id="r",
        index=0,
        token_ids=ids,
        logprobs=(-0.1,) * len(ids),
        stop_reason=StopReason.END,
        policy_version=0,
    )
    return Turn(prompt_ids=(1,), completion=completion, text=text)


def test_every_rollout_of_a_small_run_is_in_the_page(tmp_path: Path) -> None:
    write_run(tmp_path / "run", steps=4, groups=3, members=4, evals=False, hostile_step=2)
    reader = RunReader(tmp_path / "run")
    packed = pack_rollouts(reader)
    assert packed.left_out == ""
    assert [blob["step"] for blob in packed.blobs] == [1, 2, 3, 4]
    index = unpack(packed.index)
    assert packed.num_rollouts == reader.ledger().total.generated.rollouts == sum(len(r["r"]) for r in index)
    for row in index:
        (blob,) = [blob["data"] for blob in packed.blobs if blob["step"] == row["s"]]
        group = unpack(blob)[row["p"]]
        (recorded,) = [each for each in reader.rollouts(row["s"]) if each.index == row["n"]]
        assert group["id"] == recorded.group.task.id
        assert [c["reward"] for c in group["c"]] == [member.reward for member in recorded.group.rollouts]
        assert [c["reward"] for c in group["c"]] == [r[0] for r in row["r"]]


def test_a_small_budget_keeps_the_ends_and_says_what_is_missing(tmp_path: Path) -> None:
    write_run(tmp_path / "run", steps=9, groups=4, members=4, evals=False, hostile_step=0)
    packed = pack_rollouts(RunReader(tmp_path / "run"), budget_bytes=12_000)
    kept = [blob["step"] for blob in packed.blobs]
    assert {1, 9} <= set(kept)
    assert len(kept) < 9
    assert f"{9 - len(kept)} of 9 steps" in packed.left_out
    assert sum(len(blob["data"]) for blob in packed.blobs) <= 12_000


def test_a_step_that_alone_exceeds_the_budget_is_thinned(tmp_path: Path) -> None:
    write_run(tmp_path / "run", steps=1, groups=30, members=4, evals=False, hostile_step=0)
    packed = pack_rollouts(RunReader(tmp_path / "run"), budget_bytes=8_000)
    assert 0 < packed.num_groups < 30
    assert packed.left_out == f"{30 - packed.num_groups} groups of the steps shown"
    assert sum(len(blob["data"]) for blob in packed.blobs) <= 8_000


@given(st.lists(st.integers(), unique=True, max_size=40))
def test_the_order_of_steps_is_a_permutation_that_begins_at_the_ends(steps: list[int]) -> None:
    order = spread(steps)
    assert sorted(order) == sorted(steps)
    assert order[:1] == steps[:1]
    assert order[1:2] == (steps[-1:] if len(steps) > 1 else [])


def test_tokens_are_aligned_with_the_text_they_made() -> None:
    # "é" is two bytes and so two tokens here; the parrot is four bytes, one character, two UTF-16 units
    lengths = token_lengths(byte_tokenizer(), turn_of("aé🦜"))
    assert lengths == [1, 0, 1, 0, 0, 0, 2, 0]


@given(st.text())
def test_lengths_add_up_to_the_text_whatever_it_is(text: str) -> None:
    lengths = token_lengths(byte_tokenizer(), turn_of(text))
    if lengths is not None:
        assert sum(lengths) == len(text.encode("utf-16-le")) // 2
    else:
        assert text != text.strip() or not text.isprintable()


def test_a_text_that_its_tokens_do_not_spell_is_not_aligned() -> None:
    turn = turn_of("four")
    other = Turn(prompt_ids=turn.prompt_ids, completion=turn.completion, text="five")
    assert token_lengths(byte_tokenizer(), other) is None
    assert token_lengths(None, turn) is None


def test_long_texts_keep_their_beginning_and_their_end() -> None:
    text = "a" + "b" * TEXT_CHARACTERS + "c"
    short, cut = shortened(text)
    assert cut == 2
    assert short.startswith("ab")
    assert short.endswith("bc")
    assert "2 characters left out" in short
    assert shortened("a" * TEXT_CHARACTERS) == ("a" * TEXT_CHARACTERS, 0)


def test_questions_show_what_training_changed(tmp_path: Path) -> None:
    write_run(tmp_path / "run", steps=20, groups=2, members=2, hostile_step=0)
    reader = RunReader(tmp_path / "run")
    packed = pack_questions(reader, budget_bytes=10**7)
    before = {q.task_id: q.completions[0].right for q in reader.eval_questions(0)}
    after = {q.task_id: q.completions[0].right for q in reader.eval_questions(20)}
    words = {(False, True): "learnt", (True, False): "lost", (True, True): "right", (False, False): "wrong"}
    for row in unpack(packed.index):
        was, now = before[row["id"]], after[row["id"]]
        assert row["ch"] == ("" if was is None or now is None else words[was, now])


@pytest.mark.parametrize("budget", [0, 500])
def test_no_room_at_all_leaves_everything_out(tmp_path: Path, budget: int) -> None:
    write_run(tmp_path / "run", steps=2, groups=2, members=2, hostile_step=0)
    reader = RunReader(tmp_path / "run")
    assert pack_rollouts(reader, budget_bytes=budget).num_groups <= 1
    assert pack_questions(reader, budget_bytes=0).left_out == "120 of 120 questions"


def test_what_is_embedded_is_json_that_a_browser_reads() -> None:
    text = gzip.decompress(
        base64.b64decode(compress({"a": math.nan, "b": "half \ud800", "c": "🦜"}))
    ).decode()
    assert json.loads(text, parse_constant=pytest.fail) == {"a": "nan", "b": "half \ufffd", "c": "🦜"}
