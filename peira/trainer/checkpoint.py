"""Checkpoints: whole or not at all.

    checkpoints/.step-20.partial/     written here, every file flushed to disk
        config.json, model.safetensors, tokenizer ...   by the engine: an ordinary `transformers` folder
        optimizer state ...                             by the engine
        trainer.json                                    where the loop stands
        manifest.json                                   size and SHA-256 of every file above, written last
    checkpoints/step-20/              the same folder, renamed: this is the moment it exists
    checkpoints/latest                names it

A process killed anywhere in between leaves a `.partial` folder, which is never read and is swept away by the
next save.
"""

import errno
import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from peira.engines.protocol import Engine
from peira.errors import CheckpointError, RunError
from peira.trainer.state import TrainerState

MANIFEST = "manifest.json"
STATE = "trainer.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A verified checkpoint on disk."""

    path: Path
    state: TrainerState


async def save_checkpoint(folder: Path, engine: Engine, state: TrainerState, *, fingerprint: str) -> Path:
    """Write `folder/step-N` and point `latest` at it; return its path.

    Args:
        folder: the run's `checkpoints` folder.
        fingerprint: of the settings that decide the loss trace; `load_checkpoint` compares it.

    Raises:
        RunError: the disk is full or the folder cannot be written; earlier checkpoints are untouched.
    """
    final = folder / f"step-{state.step}"
    partial = folder / f".step-{state.step}.partial"
    if final.exists():  # this step was saved already: at its end, then on interruption
        return final
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(".step-*.partial"):
            shutil.rmtree(leftover)
        partial.mkdir()
        await engine.save(partial)
        (partial / STATE).write_text(state.to_json())
        files = {
            str(path.relative_to(partial)): {"bytes": path.stat().st_size, "sha256": _digest(path)}
            for path in sorted(partial.rglob("*"))
            if path.is_file()
        }
        manifest = {"format": 1, "step": state.step, "fingerprint": fingerprint, "files": files}
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=2))
        for path in partial.rglob("*"):
            _flush(path)
        _flush(partial)
        os.rename(partial, final)
        pointer = folder / ".latest.partial"
        pointer.write_text(final.name + "\n")
        _flush(pointer)
        os.replace(pointer, folder / "latest")
        _flush(folder)
    except Exception as error:
        # torch and safetensors report a full disk as errors of their own, so the disk itself is asked.
        full = _is_full(folder) or (
            isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        )
        shutil.rmtree(partial, ignore_errors=True)
        if not full and not isinstance(error, OSError):
            raise
        reason = "the disk is full" if full else str(error)
        raise RunError(
            f"{final}: checkpoint not written: {reason}; earlier checkpoints are whole: free space, then "
            "continue with --resume"
        ) from error
    return final


def load_checkpoint(path: Path, *, fingerprint: str | None) -> Checkpoint:
    """Verify one checkpoint folder and read where the loop stood.

    Raises:
        CheckpointError: a file is missing, has another size or hash than the manifest says, or the checkpoint
            belongs to settings with another fingerprint (None skips that last check).
    """
    try:
        manifest = json.loads((path / MANIFEST).read_text())
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path}: no {MANIFEST}: expected a folder written by `peira train`; "
            "a bare model folder goes into `model=`"
        ) from error
    except ValueError as error:
        raise CheckpointError(f"{path / MANIFEST}: not JSON: {error}; use an earlier checkpoint") from error
    for name, expected in manifest["files"].items():
        file = path / name
        if not file.is_file():
            raise CheckpointError(f"{file}: missing, though the manifest lists it; use an earlier checkpoint")
        if file.stat().st_size != expected["bytes"] or _digest(file) != expected["sha256"]:
            raise CheckpointError(
                f"{file}: differs from its SHA-256 in the manifest; use an earlier checkpoint"
            )
    if fingerprint is not None and manifest["fingerprint"] != fingerprint:
        raise CheckpointError(
            f"{path}: written under other settings than these: a resumed run continues the same loss trace; "
            f"give the settings of the run's config.yaml, or start a new run with model={path}"
        )
    return Checkpoint(path=path, state=TrainerState.from_json((path / STATE).read_text()))


def checkpoints(folder: Path) -> list[Path]:
    """Every finished checkpoint in this folder, oldest first."""
    found = [p for p in folder.glob("step-*") if p.is_dir() and p.name.removeprefix("step-").isdigit()]
    return sorted(found, key=lambda p: int(p.name.removeprefix("step-")))


def latest_fingerprint(folder: Path) -> str | None:
    """Of the settings that the newest checkpoint was written under; None when there is none to be read."""
    for path in reversed(checkpoints(folder)):
        try:
            return str(json.loads((path / MANIFEST).read_text())["fingerprint"])
        except (OSError, ValueError, KeyError):
            continue
    return None


def latest_checkpoint(folder: Path, *, fingerprint: str | None) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that verifies, and one line for each newer one that does not.

    Raises:
        CheckpointError: checkpoints exist but none can be used, or the newest belongs to other settings.
    """
    damaged: list[str] = []
    found = checkpoints(folder)
    for path in reversed(found):
        try:
            verified = load_checkpoint(path, fingerprint=None)
        except CheckpointError as error:
            damaged.append(str(error))
            continue
        return load_checkpoint(verified.path, fingerprint=fingerprint), damaged
    if found:
        raise CheckpointError(f"{folder}: no checkpoint can be used:\n  " + "\n  ".join(damaged))
    return None, damaged


def discard_after(folder: Path, step: int) -> None:
    """Delete checkpoints later than this step: a run that resumes from it will write them anew."""
    for path in checkpoints(folder):
        if int(path.name.removeprefix("step-")) > step:
            _remove(path)


def prune_checkpoints(folder: Path, *, keep_last: int, keep_best: int) -> list[Path]:
    """Delete what retention does not keep; return what was deleted.

    The newest `keep_last` stay, and the `keep_best` with the highest held-out accuracy (the later of equals).
    """
    found = checkpoints(folder)
    keep = set(found[-keep_last:])
    if keep_best:
        scored = []
        for path in found:
            accuracy = TrainerState.from_json((path / STATE).read_text()).accuracy
            if accuracy is not None:
                scored.append((accuracy, int(path.name.removeprefix("step-")), path))
        keep |= {path for _, _, path in sorted(scored, reverse=True)[:keep_best]}
    gone = [path for path in found if path not in keep]
    for path in gone:
        _remove(path)
    return gone


def _is_full(folder: Path) -> bool:
    return shutil.disk_usage(folder).free < 2**20


def _remove(path: Path) -> None:
    """Renamed first: a half-deleted folder must not look like a checkpoint."""
    doomed = path.with_name(f".{path.name}.partial")
    os.rename(path, doomed)
    shutil.rmtree(doomed)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
