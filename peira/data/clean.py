"""What is left out of training, and why: duplicates, held-out tasks, overlap with them, prompts too long."""

import hashlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from peira.data.fingerprint import content_hash
from peira.data.source import TaskTable
from peira.errors import DataError
from peira.types.task import Message, Task

Rule = Literal["drop", "keep", "error"]
_LISTED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What `without_duplicates` and `without_overlap` saw, whatever the rule was."""

    repeats: tuple[tuple[str, str], ...]
    """Place of each repeated row, and of the row it repeats."""
    conflicts: tuple[tuple[str, str], ...] = ()
    """Places of rows with one prompt and different answers."""


def without_duplicates(tables: Sequence[TaskTable], rule: Rule) -> tuple[list[TaskTable], Findings]:
    """Leave out rows whose prompt and answer a row before them has, in the same table or an earlier one.

    Rows with equal prompts and different answers are no duplicates; they are found and kept.

    Raises:
        DataError: there are duplicates and the rule is "error"; names the first few pairs.
    """
    first: dict[tuple[str, str], str] = {}
    prompts: dict[str, str] = {}
    repeats, conflicts, repeated = [], [], set[tuple[int, int]]()
    for number, table in enumerate(tables):
        for index, (task, place, key) in enumerate(zip(table.tasks, table.places, table.keys, strict=True)):
            content = (key, content_hash(task.answer))
            if content in first:
                repeats.append((place, first[content]))
                repeated.add((number, index))
            elif key in prompts:
                conflicts.append((place, prompts[key]))
            first.setdefault(content, place)
            prompts.setdefault(key, place)
    if repeats and rule == "error":
        raise DataError(_pairs("data.duplicates = 'error'", "has the prompt and the answer of", repeats))
    kept = [
        _rows(table, [i for i in range(len(table.tasks)) if rule == "keep" or (number, i) not in repeated])
        for number, table in enumerate(tables)
    ]
    return kept, Findings(repeats=tuple(repeats), conflicts=tuple(conflicts))


def without_overlap(
    train: Sequence[TaskTable], held_out: Sequence[TaskTable], rule: Rule
) -> tuple[list[TaskTable], Findings]:
    """Leave training rows out whose prompt is among the held-out ones.

    Raises:
        DataError: there are some and the rule is "error"; names the first few pairs.
    """
    held = {key: place for table in held_out for key, place in zip(table.keys, table.places, strict=True)}
    repeats = [
        (place, held[key])
        for table in train
        for key, place in zip(table.keys, table.places, strict=True)
        if key in held
    ]
    if repeats and rule == "error":
        raise DataError(_pairs("data.duplicates = 'error'", "has the held-out prompt of", repeats))
    kept = [_without(table, () if rule == "keep" else held) for table in train]
    return kept, Findings(repeats=tuple(repeats))


def split_held_out(tables: Sequence[TaskTable], fraction: float) -> tuple[list[TaskTable], list[TaskTable]]:
    """Training and held-out rows of each table, decided by a hash of each prompt alone.

    A task stays on its side whatever rows come, go or change places, and rows with equal prompts are never
    parted. Whatever the fraction, every table keeps a prompt for training, and one prompt in all is
    held out when the fraction is not 0 and there are two.
    """
    if fraction == 0:
        return list(tables), []
    train, held_out = [], []
    for table in tables:
        shares = {key: _share(key) for key in table.keys}
        held = {key for key, share in shares.items() if share < fraction}
        if len(held) == len(shares):
            held.discard(max(shares, key=shares.__getitem__))
        train.append(_without(table, held))
        held_out.append(_without(table, shares.keys() - held))
    if not any(table.tasks for table in held_out):
        largest = max(range(len(tables)), key=lambda i: len(set(tables[i].keys)))
        keys = sorted(set(tables[largest].keys), key=_share)
        if len(keys) > 1:
            train[largest] = _without(tables[largest], {keys[0]})
            held_out[largest] = _without(tables[largest], set(keys[1:]))
    return train, [table for table in held_out if table.tasks]


def with_unique_ids(tables: Sequence[TaskTable]) -> list[TaskTable]:
    """Ids that occur twice get the hash of their prompt behind them, and a number if that repeats."""
    counts: dict[str, int] = {}
    for table in tables:
        for task in table.tasks:
            counts[task.id] = counts.get(task.id, 0) + 1
    taken = {name for name, count in counts.items() if count == 1}
    return [
        replace(
            table,
            tasks=tuple(
                task if counts[task.id] == 1 else replace(task, id=_fresh(f"{task.id}-{key[:8]}", taken))
                for task, key in zip(table.tasks, table.keys, strict=True)
            ),
        )
        for table in tables
    ]


def check_answers(
    tasks: Iterable[Task], needs_answer: Callable[[Task], bool], places: Mapping[str, str] | None = None
) -> None:
    """Refuse tasks without an answer whose verifier cannot judge without one.

    An empty text counts as missing; 0, False and an empty list are answers.

    Args:
        places: where each task stands, by id; ids are shown where there is none.

    Raises:
        DataError: how many there are, and the first few.
    """
    missing = [task for task in tasks if (task.answer is None or task.answer == "") and needs_answer(task)]
    if missing:
        shown = ", ".join(
            f"{(places or {}).get(task.id, task.id)} ({_start(task)})" for task in missing[:_LISTED]
        )
        raise DataError(
            f"data: answer = None in {len(missing)} tasks: {shown}: expected a reference answer, since their "
            "verifier needs one; name its column with columns: {answer: COLUMN}, or choose another verifier"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthReport:
    """Prompt lengths in tokens, and what was left out for them."""

    num_tasks: int
    dropped: tuple[tuple[str, int], ...] = field(default=())
    """Id and tokens of each task left out, longest first."""
    longest: int = 0
    """Of the prompts that stay."""


def within_length(
    tasks: Sequence[Task],
    count_tokens: Callable[[Task], int],
    *,
    max_tokens: int,
    long_prompts: Literal["error", "drop"],
) -> tuple[tuple[Task, ...], LengthReport]:
    """Tasks whose prompt has at most `max_tokens` tokens. Prompts are never cut.

    Raises:
        DataError: longer ones exist and the rule is "error", or none is short enough; names the longest.
    """
    lengths = [count_tokens(task) for task in tasks]
    kept = tuple(task for task, length in zip(tasks, lengths, strict=True) if length <= max_tokens)
    long = sorted(
        ((task.id, length) for task, length in zip(tasks, lengths, strict=True) if length > max_tokens),
        key=lambda item: (-item[1], item[0]),
    )
    if long and (long_prompts == "error" or not kept):
        worst = ", ".join(f"{name!r} {length}" for name, length in long[:_LISTED])
        raise DataError(
            f"data.max_prompt_tokens = {max_tokens}: {len(long)} of {len(tasks)} prompts are longer; "
            f"the longest, in tokens: {worst}; raise it, lower "
            "sampling.max_tokens, or set data.long_prompts: drop"
        )
    longest = max((length for length in lengths if length <= max_tokens), default=0)
    return kept, LengthReport(num_tasks=len(tasks), dropped=tuple(long), longest=longest)


def _share(key: str) -> float:
    digest = hashlib.sha256(b"held out/" + key.encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64


def _without(table: TaskTable, keys: Container[str]) -> TaskTable:
    return _rows(table, [i for i, key in enumerate(table.keys) if key not in keys])


def _rows(table: TaskTable, indices: Sequence[int]) -> TaskTable:
    return replace(
        table,
        tasks=tuple(table.tasks[i] for i in indices),
        places=tuple(table.places[i] for i in indices),
        keys=tuple(table.keys[i] for i in indices),
    )


def _fresh(name: str, taken: set[str]) -> str:
    fresh, number = name, 1
    while fresh in taken:
        number += 1
        fresh = f"{name}-{number}"
    taken.add(fresh)
    return fresh


def _pairs(place: str, relation: str, pairs: Sequence[tuple[str, str]]) -> str:
    listed = "; ".join(f"{one} {relation} {other}" for one, other in pairs[:_LISTED])
    more = f"; and {len(pairs) - _LISTED} more" if len(pairs) > _LISTED else ""
    return f"{place}: {listed}{more}; remove them, or set data.duplicates: drop"


def _start(task: Task) -> str:
    last: str | Message = task.prompt if isinstance(task.prompt, str) else task.prompt[-1]
    text = last if isinstance(last, str) else last.content
    return repr(text if len(text) <= 40 else f"{text[:40]}...")
