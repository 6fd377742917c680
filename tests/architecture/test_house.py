"""Who may import whom. The table is the design; the test only reads it."""

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "peira"
FACTS = {"errors", "types"}
SEAMS = FACTS | {"config", "engines.protocol"}

MAY_IMPORT = {
    # ground
    "errors": set(),
    "types": {"errors"},
    "config": {"errors"},
    "runs": FACTS,
    # 1: knowledge
    "sandbox": FACTS,
    "verifiers": FACTS | {"sandbox"},
    "data": FACTS | {"config"},
    "algorithms": {"errors"},
    # 2: the world, the network
    "envs": FACTS | {"sandbox"},
    "models": FACTS | {"algorithms"},
    # 3: machines
    "engines": FACTS | {"config", "algorithms", "models"},
    # 4: the line
    "pipeline": SEAMS | {"algorithms", "verifiers", "data", "envs"},
    "prm": SEAMS | {"runs", "algorithms", "verifiers.protocol", "pipeline"},
    # 5: the loop
    "trainer": SEAMS | {"runs", "algorithms", "data", "verifiers.protocol", "pipeline"},
    # 6: service
    "serve": SEAMS | {"runs"},
    "flywheel": SEAMS | {"runs", "data", "verifiers", "pipeline", "trainer", "serve"},
    # windows
    "plots": FACTS | {"runs"},
    "dashboard": FACTS | {"runs", "plots"},
}
ROOF = {"build", "cli", "studies", "__init__", "__main__"}
STDLIB_ONLY = {
    "errors": set(),
    "types": set(),
    "config": {"pydantic", "omegaconf", "yaml"},
    "runs": {"filelock"},
}
NO_TENSORS = {"torch", "numpy", "jaxtyping"}
HEAVY = {"ray", "vllm", "deepspeed"}
MUST_NOT_IMPORT = {
    "sandbox": NO_TENSORS,
    "verifiers": NO_TENSORS,
    "data": NO_TENSORS,
    "envs": NO_TENSORS,
    "algorithms": {"os", "pathlib", "json", "logging", "random", "time", "asyncio", "torch.distributed"},
    "models": HEAVY,
    "pipeline": HEAVY,
    "prm": HEAVY,
    "trainer": HEAVY,
    "plots": {"torch"},
    "dashboard": {"torch"},
}
# Engines see the shared files of their floor and themselves; only ray may host the others.
ENGINE_SHARED = {"protocol", "weights", "pair"}


def imported(path: Path) -> set[str]:
    """Every module a file names, at any depth: lazy and type-only imports count too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write the full name"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def inside(name: str, rooms: set[str]) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if room in ROOF:
        return
    for name in imported(path):
        if name.startswith("peira."):
            target = name.removeprefix("peira.")
            assert inside(target, MAY_IMPORT[room] | {room}), f"{room} may not import {target}"
        elif room in STDLIB_ONLY:
            top = name.split(".")[0]
            assert top in sys.stdlib_module_names | STDLIB_ONLY[room], f"{room} may not import {name}"
        assert not inside(name, MUST_NOT_IMPORT.get(room, set())), f"{room} may not import {name}"


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "engines").rglob("*/*.py")), ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_an_engine_sees_itself_and_the_shared_files(path: Path) -> None:
    own = path.relative_to(PACKAGE / "engines").parts[0]
    for name in imported(path):
        if name.startswith("peira.engines.") and own != "ray":
            target = name.removeprefix("peira.engines.").split(".")[0]
            assert target in ENGINE_SHARED | {own}, f"engines.{own} may not import engines.{target}"
        assert not inside(name, HEAVY - {own}), f"engines.{own} may not import {name}"


def test_there_is_no_room_for_odds_and_ends() -> None:
    names = {path.stem for path in PACKAGE.rglob("*") if path.is_dir() or path.suffix == ".py"}
    assert not names & {"utils", "util", "common", "helpers", "misc"}
