"""Model folders on disk: written whole or not at all, and proven by a manifest."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from peira.errors import ModelError

MANIFEST = "manifest.json"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder` that takes its name, with a manifest, once the block has succeeded.

    Killed at any point, the process leaves either no `folder` or a whole one, and perhaps a temporary folder
    named `.NAME.RANDOM.partial`, which nobody reads.

    Raises:
        ModelError: `folder` exists already and is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ModelError(f"{folder}: exists and is not empty; choose another folder, or remove this one")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent))
    try:
        yield temporary
        files = sorted(p for p in temporary.rglob("*") if p.is_file())
        manifest = {
            str(p.relative_to(temporary)): {"size_bytes": p.stat().st_size, "sha256": _sha256(p)}
            for p in files
        }
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
        for path in (*files, temporary / MANIFEST, temporary):
            path.chmod(0o755 if path.is_dir() else 0o644)
            _flush(path)
        os.rename(temporary, folder)
        _flush(folder.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def is_whole(folder: Path, *, hashes: bool = False) -> bool:
    """Whether the folder holds every file of its manifest with its size, and its hash when asked."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        return all(
            (folder / name).stat().st_size == entry["size_bytes"]
            and (not hashes or _sha256(folder / name) == entry["sha256"])
            for name, entry in manifest.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
