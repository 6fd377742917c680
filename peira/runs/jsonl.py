"""Files of JSON lines: appended whole, read up to the last whole line.

Strict JSON has no NaN; here a number that is not finite is the string "nan", "inf" or "-inf", and readers
who expect a number turn it back with `number`.
"""

import errno
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from peira.errors import RunError
from peira.runs.layout import temporary_of

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def dumps(value: Any) -> bytes:
    """One line of strict JSON in UTF-8. What JSON does not know is written as its text, never refused."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain)
    except ValueError:  # a NaN or an infinity somewhere inside
        value = _finite(value)
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, which UTF-8 cannot carry but a JSON escape can
        return json.dumps(value, separators=(",", ":"), allow_nan=False, default=_plain).encode() + b"\n"


def number(value: Any) -> float:
    """The number that `dumps` wrote."""
    return float(value)


def _finite(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case Mapping():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case _:
            return value


def _plain(value: Any) -> Any:
    """For `default=`: mappings and collections by their content, the rest by its text."""
    if hasattr(value, "items"):
        return dict(value.items())
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if hasattr(value, "tolist"):  # arrays and their scalars, without naming a library
        return value.tolist()
    return str(value)


class JsonLines:
    """An append-only file of JSON lines, open for writing.

    After any error the file holds whole lines only: a line that did not fit is taken back.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        drop_partial_line(path)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)

    def append(self, record: Any) -> None:
        """Write one line; it is in the kernel's hands afterwards and survives a kill -9 (see `sync`).

        Raises:
            RunError: the disk is full or the file cannot be written; earlier lines are intact.
        """
        size = os.fstat(self._fd).st_size
        try:
            write_all(self._fd, dumps(record))
        except OSError as error:
            with suppress(OSError):  # if this fails too, the next writer cuts the partial line off
                os.ftruncate(self._fd, size)
            raise disk_error(self.path, error) from error

    def sync(self) -> None:
        """Wait until the disk has every line; needed against power loss only."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise disk_error(self.path, error) from error

    def keep(self, is_kept: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Rewrite the file with the records that `is_kept` accepts, at once; return the others."""
        kept: list[dict[str, Any]] = []
        dropped: list[dict[str, Any]] = []
        for record in read_lines(self.path):
            (kept if is_kept(record) else dropped).append(record)
        if dropped:
            write_whole(self.path, kept)
            os.close(self._fd)
            self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        return dropped

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def write_all(fd: int, data: bytes) -> None:
    """`os.write` until all is written."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def write_whole(path: Path, records: Iterable[Any]) -> None:
    """Write a file of JSON lines that appears complete or not at all, even if the power fails.

    Raises:
        RunError: the disk is full or the folder cannot be written; what stood at `path` stands there still.
    """
    write_file(path, map(dumps, records))


def write_file(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file that appears complete or not at all.

    Raises:
        RunError: as for `write_whole`.
    """
    if path.is_dir():
        raise RunError(f"{path}: expected a file to write, found a folder")
    temporary = temporary_of(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise disk_error(path, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def drop_partial_line(path: Path) -> int:
    """Cut off what a killed writer left behind the last line feed; return how many bytes that was."""
    if not path.exists():
        return 0
    with open(path, "rb+") as file:
        end = file.seek(0, os.SEEK_END)
        start = end
        while start > 0:
            block = min(start, 1 << 16)
            file.seek(start - block)
            found = file.read(block).rfind(b"\n")
            if found >= 0:
                keep = start - block + found + 1
                break
            start -= block
        else:
            keep = 0
        if keep < end:
            file.truncate(keep)
        return end - keep


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file of JSON lines; none when the file does not exist.

    A last line without a line feed is being written, or its writer was killed: it is left out.

    Raises:
        RunError: a whole line is not a JSON object; names file and line.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115  closed below; the `with` would hide FileNotFoundError's place
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}: expected a readable file") from error
    with file:
        for place, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as error:
                raise RunError(
                    f"{path}:{place}: expected one JSON object per line, found {line[:60]!r}; "
                    "the file was changed by something else: remove that line to read the rest"
                ) from error
            if not isinstance(record, dict):
                raise RunError(f"{path}:{place}: expected a JSON object, found {line[:60]!r}")
            yield record


def disk_error(path: Path, error: OSError) -> RunError:
    """The one form in which a failing disk is reported."""
    if error.errno in _FULL:
        return RunError(
            f"{path}: {error.strerror}: expected room to write; everything written before is intact: "
            "free some space, then resume the run"
        )
    return RunError(f"{path}: {error.strerror or error}: expected a writable run folder")
