"""Files into rows, each with the place that an error about it names."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from peira.errors import DataError

MAX_LINE_BYTES = 64 * 1024**2
_SHOWN = 60
# A high or low surrogate written as an escape; only a pair of them is a character.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a dataset, as it was stored."""

    place: str
    """Where it stands: `train.jsonl: line 3`."""
    values: Mapping[str, Any]


def read_jsonl(path: Path) -> Iterator[Row]:
    """Rows of a file with one JSON object per line; blank lines and a byte order mark are passed over.

    Raises:
        DataError: a line that is not UTF-8, not JSON, not an object, or too long; names file, line and what
            stands there.
    """
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            place = f"{path.name}: line {number}"
            if len(line) > MAX_LINE_BYTES:
                raise DataError(
                    f"{place}: longer than {MAX_LINE_BYTES} bytes: expected one row per line; "
                    "was the file written without line ends?"
                )
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if line.strip():
                yield Row(place=place, values=_object(place, line))


def read_json(path: Path) -> Iterator[Row]:
    """Rows of a file that is one JSON array of objects; one that starts otherwise is JSON lines."""
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if not data.lstrip().startswith(b"["):
        yield from read_jsonl(path)
        return
    for index, value in enumerate(_parsed(path.name, data)):
        place = f"{path.name}: item {index}"
        if not isinstance(value, dict):
            raise DataError(f"{place} = {shown(value)}: expected an object with one value per column")
        yield Row(place=place, values=value)


def read_parquet(path: Path) -> Iterator[Row]:
    """Rows of a Parquet file, nested columns as lists and dicts.

    Raises:
        DataError: the file is not Parquet, or damaged.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            index = 0
            for batch in file.iter_batches(batch_size=1024):
                for values in batch.to_pylist():
                    yield Row(place=f"{path.name}: row {index}", values=values)
                    index += 1
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(
            f"{path}: not a readable Parquet file ({first_line(error)}); write it again"
        ) from error


def number_rows(name: str, values: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    """Rows of a dataset that knows no lines."""
    for index, row in enumerate(values):
        yield Row(place=f"{name}: row {index}", values=row)


def shown(value: Any) -> str:
    """A value as an error shows it: `repr`, cut to one short line."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"


def nearest(name: str, names: Iterable[str]) -> str:
    """` (nearest: 'x')`, or nothing when no name is near."""
    close = get_close_matches(name, [str(known) for known in names], n=1)
    return f" (nearest: {close[0]!r})" if close else ""


def first_line(error: BaseException) -> str:
    """What another library says went wrong, in one line."""
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__


def _object(place: str, line: bytes) -> dict[str, Any]:
    value = _parsed(place, line)
    if not isinstance(value, dict):
        raise DataError(f"{place} = {shown(value)}: expected one JSON object per line, such as {_EXAMPLE}")
    return value


_EXAMPLE = '{"prompt": "1 + 1 = ?", "answer": "2"}'


def _parsed(place: str, data: bytes) -> Any:
    data = data.rstrip()
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{place}, byte {error.start + 1} = {data[error.start : error.start + 4]!r}: expected UTF-8; "
            "save the file as UTF-8"
        ) from error
    try:
        value = json.loads(text, parse_constant=_no_number)
        if _SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        line = f", line {error.lineno}" if "\n" in text else ""
        raise DataError(
            f"{place}{line}, column {error.colno}: {error.msg} at {shown(text[error.pos :])}: "
            f"expected JSON such as {_EXAMPLE}; correct the line or delete it"
        ) from error
    except UnicodeEncodeError as error:
        raise DataError(
            f"{place}: half of a surrogate pair, \\u{ord(error.object[error.start]):04x}: expected a "
            "character; write it as UTF-8 or as both halves"
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{place}: {first_line(error)}: expected JSON that can be held; correct the line"
        ) from error
    return value


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number, write null or a string")
