"""The rollouts of a run, packed for the page: chosen, compressed, aligned with their tokens.

The page must stay small enough to be sent by mail, so steps are taken in the order first, last, middle,
quarters, ... until the budget is spent, and what was left out is said. Each step is a gzip blob of its own,
which the page unpacks when somebody looks at it.
"""

import base64
import gzip
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peira.runs.evaluation import EvalQuestion
from peira.runs.jsonl import dumps
from peira.runs.reader import RunReader
from peira.runs.rollout_file import RecordedGroup
from peira.types.rollout import Rollout, Turn
from peira.types.scored import ScoredRollout
from peira.types.task import Message
from peira.types.verdict import VerdictStatus

BUDGET_BYTES = 10_000_000
"""Of the page that rollouts may fill, as written there."""
STEP_BYTES = 1_500_000
"""Of that, at most this much for one step; its groups are thinned evenly to fit."""
TEXT_CHARACTERS = 20_000
"""A longer completion is shown by its beginning and its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """What the page embeds."""

    blobs: list[dict[str, Any]]
    """Per kept step: {"step", "data"}, data being base64 of gzip of a JSON list of groups."""
    index: str
    """base64 of gzip of the columns that filters need."""
    left_out: str
    """What is not in the page, in words; empty when everything is."""
    num_rollouts: int
    num_groups: int


def pack_rollouts(reader: RunReader, *, budget_bytes: int = BUDGET_BYTES) -> Packed:
    """Choose and compress the rollouts of a run."""
    steps = reader.rollout_steps()
    decode = pieces_of(reader)
    kept: dict[int, tuple[str, list[dict[str, Any]]]] = {}
    spent = thinned = 0
    for step in spread(steps):
        groups = [_group(recorded, decode) for recorded in reader.rollouts(step)]
        blob, groups, dropped = _fit(groups, min(STEP_BYTES, budget_bytes - spent))
        if groups or not dropped:
            kept[step] = (blob, groups)
            spent += len(blob)
            thinned += dropped
        if spent > 0.95 * budget_bytes or (dropped and not groups):
            break
    index = [
        _index_row(step, place, group) for step in sorted(kept) for place, group in enumerate(kept[step][1])
    ]
    missing = []
    if len(kept) < len(steps):
        missing.append(f"{len(steps) - len(kept):,} of {len(steps):,} steps")
    if thinned:
        missing.append(f"{thinned:,} groups of the steps shown")
    return Packed(
        blobs=[{"step": step, "data": kept[step][0]} for step in sorted(kept)],
        index=compress(index),
        left_out=" and ".join(missing),
        num_rollouts=sum(len(row["r"]) for row in index),
        num_groups=len(index),
    )


def pack_questions(reader: RunReader, *, budget_bytes: int) -> Packed:
    """The held-out questions, with what the policy said at the first evaluation and at the last."""
    steps = [record.step for record in reader.evals()]
    chosen = sorted({steps[0], steps[-1]}) if steps else []
    questions: dict[str, dict[str, Any]] = {}
    for step in chosen:
        for question in reader.eval_questions(step):
            entry = questions.setdefault(question.task_id, _question(question))
            entry["c"] += [_answer(step, question, index) for index in range(len(question.completions))]
    blob, groups, dropped = _fit(list(questions.values()), budget_bytes)
    index = [_question_row(place, group, chosen) for place, group in enumerate(groups)]
    return Packed(
        blobs=[{"step": 0, "data": blob}] if groups else [],
        index=compress(index),
        left_out=f"{dropped:,} of {len(questions):,} questions" if dropped else "",
        num_rollouts=sum(len(group["c"]) for group in groups),
        num_groups=len(groups),
    )


def spread(steps: Sequence[int]) -> list[int]:
    """First, last, then halves of halves: any beginning of this order covers the run evenly.

    Example:
        >>> spread([1, 2, 3, 4, 5])
        [1, 5, 3, 2, 4]
    """
    if len(steps) <= 2:
        return list(steps)
    order = [0, len(steps) - 1]
    spans = [(0, len(steps) - 1)]
    while spans:
        later = []
        for low, high in spans:
            if high - low > 1:
                middle = (low + high) // 2
                order.append(middle)
                later += [(low, middle), (middle, high)]
        spans = later
    return [steps[index] for index in order]


def compress(value: Any) -> str:
    """base64 of gzip of JSON for a browser: no NaN, no half surrogate pairs; equal for equal values."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=str)
    except ValueError:
        return compress(json.loads(dumps(value)))
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    return base64.b64encode(gzip.compress(whole, compresslevel=9, mtime=0)).decode()


def _fit(groups: list[dict[str, Any]], limit: int) -> tuple[str, list[dict[str, Any]], int]:
    """The blob of as many groups as fit, taken evenly: (blob, groups, how many were dropped)."""
    kept = groups
    while True:
        blob = compress(kept)
        if len(blob) <= limit or not kept:
            return blob, kept, len(groups) - len(kept)
        share = 0.9 * limit / len(blob)
        number = max(0, min(len(kept) - 1, math.floor(len(kept) * share)))
        kept = [groups[index * len(groups) // number] for index in range(number)] if number else []


def pieces_of(reader: RunReader) -> Any:
    """A tokenizer to cut texts into tokens with, from the newest checkpoint that has one; None without."""
    try:
        from tokenizers import Tokenizer
    except ImportError:  # a report can be made where only the run folder is
        return None
    files = sorted(reader.folder.checkpoints_folder.glob("step-*/tokenizer.json"), key=_checkpoint_step)
    try:
        return Tokenizer.from_file(str(files[-1])) if files else None
    except Exception:  # the library raises bare Exceptions; tinting is a convenience
        return None


def _checkpoint_step(path: Path) -> int:
    name = path.parent.name.removeprefix("step-")
    return int(name) if name.isdigit() else -1


def token_lengths(tokenizer: Any, turn: Turn) -> list[int] | None:
    """UTF-16 units of `turn.text` that each token adds, as a browser counts; None when they do not add up."""
    if tokenizer is None:
        return None
    from tokenizers.decoders import DecodeStream

    stream = DecodeStream(skip_special_tokens=True)
    pieces = []
    try:
        for token in turn.completion.token_ids:
            pieces.append(stream.step(tokenizer, token) or "")
    except Exception:  # an id outside the vocabulary, or bytes that are not UTF-8
        return None
    joined = "".join(pieces)
    start = joined.find(turn.text) if turn.text else 0
    if start < 0 or joined.replace(turn.text, "", 1).strip():
        return None
    if start or joined != turn.text:
        pieces = list(_trimmed(pieces, start, len(turn.text)))
    return [_utf16(piece) for piece in pieces]


def _trimmed(pieces: Iterable[str], start: int, length: int) -> Iterator[str]:
    """What of each piece lies in [start, start + length): decoding may strip a space at either end."""
    place = 0
    for piece in pieces:
        yield piece[max(0, start - place) : max(0, start + length - place)]
        place += len(piece)


def _utf16(text: str) -> int:
    return len(text) + sum(character > "\uffff" for character in text)


def _group(recorded: RecordedGroup, tokenizer: Any) -> dict[str, Any]:
    group = recorded.group
    rewards = {rollout.reward for rollout in group.rollouts if rollout.reward is not None}
    return {
        "n": recorded.index,
        "id": group.task.id,
        "source": group.task.source,
        "prompt": _messages(group.task.prompt),
        "answer": _plain(group.task.answer),
        "signal": len(rewards) > 1,
        "c": [
            _rollout(scored, advantage, "" if fate is None else fate.value, tokenizer)
            for scored, advantage, fate in zip(
                group.rollouts, recorded.advantages, recorded.fates, strict=True
            )
        ],
    }


def _rollout(scored: ScoredRollout, advantage: float | None, fate: str, tokenizer: Any) -> dict[str, Any]:
    rollout = scored.rollout
    return {
        "reward": scored.reward,
        "advantage": None if advantage is None else round(advantage, 4),
        "fate": fate,
        "tokens": rollout.num_tokens,
        "stop": rollout.stop_reason.value,
        "version": rollout.turns[-1].completion.policy_version,
        "shaping": dict(scored.shaping),
        "verdicts": [
            [name, v.status.value, v.score, v.detail, dict(v.parts), list(v.flags)]
            for name, v in scored.verdicts.items()
        ],
        "turns": [_turn(turn, index, rollout, tokenizer) for index, turn in enumerate(rollout.turns)],
    }


def _turn(turn: Turn, index: int, rollout: Rollout, tokenizer: Any) -> dict[str, Any]:
    text, cut = shortened(turn.text)
    logprobs = turn.completion.logprobs
    record: dict[str, Any] = {"text": text, "cut": cut}
    if index > 0:
        record["reply"] = len(turn.prompt_ids)
    if not cut:
        record["lp"] = [round(value, 2) if math.isfinite(value) else -99 for value in logprobs]
        lengths = token_lengths(tokenizer, turn)
        if lengths is not None:
            record["len"] = lengths
    return record


def shortened(text: str) -> tuple[str, int]:
    """A text of at most `TEXT_CHARACTERS`, and how many characters were taken out of its middle."""
    cut = len(text) - TEXT_CHARACTERS
    if cut <= 0:
        return text, 0
    half = TEXT_CHARACTERS // 2
    return f"{text[:half]}\n\n[... {cut:,} characters left out ...]\n\n{text[-half:]}", cut


def _messages(prompt: Any) -> list[list[str]]:
    """[role, content] pairs; a plain string has the role ""."""
    if isinstance(prompt, str):
        return [["", shortened(prompt)[0]]]
    pairs = []
    for message in prompt:
        role, content = (
            (message.role, message.content)
            if isinstance(message, Message)
            else (str(message.get("role", "")), message.get("content", ""))
        )
        pairs.append([role, shortened(content if isinstance(content, str) else dumps(content).decode())[0]])
    return pairs


def _plain(answer: Any) -> str:
    text = answer if isinstance(answer, str) else dumps(answer).decode().strip()
    return "" if answer is None else shortened(text)[0]


def _question(question: EvalQuestion) -> dict[str, Any]:
    return {
        "id": question.task_id,
        "source": question.source,
        "prompt": _messages(question.prompt),
        "answer": _plain(question.answer),
        "c": [],
    }


def _answer(step: int, question: EvalQuestion, index: int) -> dict[str, Any]:
    completion = question.completions[index]
    text, cut = shortened(completion.text)
    return {
        "when": step,
        "sampled": completion.sampled,
        "reward": None if completion.right is None else float(completion.right),
        "tokens": completion.num_tokens,
        "stop": completion.stop_reason,
        "verdicts": [
            [name, status, completion.scores.get(name), completion.detail.get(name, ""), {}, []]
            for name, status in completion.status.items()
        ],
        "turns": [{"text": text, "cut": cut}],
    }


def _snippet(group: dict[str, Any]) -> str:
    """The beginning of the last message, on one line."""
    text = group["prompt"][-1][1] if group["prompt"] else ""
    return " ".join(text[:400].split())[:120]


def _status(completion: dict[str, Any]) -> str:
    """The worst status among the verdicts, in the order in which a person wants to know."""
    found = [verdict[1] for verdict in completion["verdicts"]]
    order = [status.value for status in reversed(VerdictStatus)]
    return next((status for status in order if status in found), "none")


def _index_row(step: int, place: int, group: dict[str, Any]) -> dict[str, Any]:
    return {
        "s": step,
        "p": place,
        "n": group["n"],
        "id": group["id"],
        "src": group["source"],
        "t": _snippet(group),
        "g": int(group["signal"]),
        # reward, status, stop reason, fate, tokens
        "r": [[c["reward"], _status(c), c["stop"], c["fate"], c["tokens"]] for c in group["c"]],
    }


def _question_row(place: int, group: dict[str, Any], steps: Sequence[int]) -> dict[str, Any]:
    """`ch`: what became of the question between the first evaluation and the last."""
    before, after = (
        next((c["reward"] for c in group["c"] if c["when"] == step), None) for step in (steps[0], steps[-1])
    )
    change = ""
    if len(steps) > 1 and before is not None and after is not None:
        change = {(0, 1): "learnt", (1, 0): "lost", (1, 1): "right", (0, 0): "wrong"}[int(before), int(after)]
    return {
        "s": 0,
        "p": place,
        "id": group["id"],
        "src": group["source"],
        "t": _snippet(group),
        "ch": change,
        "r": [[c["reward"], _status(c), c["stop"], "", c["tokens"]] for c in group["c"]],
    }
