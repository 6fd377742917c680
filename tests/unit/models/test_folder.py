"""Folders appear whole or not at all, whoever is killed and whoever comes at the same time."""

import errno
import json
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from peira.errors import ModelError
from peira.models.catalogue import convert_once
from peira.models.folder import MANIFEST, is_whole, written_whole

FILES = 20
CONVERTER = textwrap.dedent(
    """
    import sys, time
    from pathlib import Path
    from peira.models.catalogue import convert_once

    folder, log, pause_s = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])

    def write(temporary):
        with log.open("a") as file:
            file.write("started\\n")
        for index in range(20):
            (temporary / f"part-{index}").write_text(str(index) * 1000)
            time.sleep(pause_s)

    print("ready", flush=True)
    convert_once(folder, write)
    print("done", flush=True)
    """
)


def converter(folder: Path, log: Path, pause_s: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CONVERTER, str(folder), str(log), str(pause_s)],
        stdout=subprocess.PIPE,
        text=True,
    )


def contents_are_right(folder: Path) -> bool:
    return all((folder / f"part-{i}").read_text() == str(i) * 1000 for i in range(FILES))


def test_a_folder_takes_its_name_only_after_the_block_succeeded(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "model"
    with written_whole(target) as temporary:
        (temporary / "a.txt").write_text("a")
        (temporary / "sub").mkdir()
        (temporary / "sub" / "b.txt").write_text("bb")
        assert not target.exists()
    assert (target / "sub" / "b.txt").read_text() == "bb"
    manifest = json.loads((target / MANIFEST).read_text())
    # sha256("a"), from any other tool
    assert manifest["a.txt"] == {
        "size_bytes": 1,
        "sha256": "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
    }
    assert manifest["sub/b.txt"]["size_bytes"] == 2
    assert is_whole(target, hashes=True)
    assert [p.name for p in target.parent.iterdir()] == ["model"]


def test_a_block_that_raises_leaves_nothing(tmp_path: Path) -> None:
    def fill_the_disk() -> None:
        with written_whole(tmp_path / "model") as temporary:
            (temporary / "a.txt").write_text("a")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        fill_the_disk()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(ModelError, match="not empty"), written_whole(tmp_path):
        pass
    assert (tmp_path / "mine.txt").read_text() == "precious"


@pytest.mark.parametrize("damage", ["missing", "short", "no manifest", "unreadable manifest"])
def test_a_damaged_folder_is_not_whole_and_is_written_anew(tmp_path: Path, damage: str) -> None:
    def write(temporary: Path) -> None:
        (temporary / "weights").write_text("12345")

    folder = convert_once(tmp_path / "model", write)
    assert is_whole(folder)
    match damage:
        case "missing":
            (folder / "weights").unlink()
        case "short":
            (folder / "weights").write_text("123")
        case "no manifest":
            (folder / MANIFEST).unlink()
        case _:
            (folder / MANIFEST).write_text("[")
    assert not is_whole(folder)
    assert (convert_once(folder, write) / "weights").read_text() == "12345"


def test_hashes_find_what_sizes_do_not(tmp_path: Path) -> None:
    with written_whole(tmp_path / "model") as temporary:
        (temporary / "weights").write_text("12345")
    (tmp_path / "model" / "weights").write_text("12346")
    assert is_whole(tmp_path / "model")
    assert not is_whole(tmp_path / "model", hashes=True)


def test_of_two_processes_one_converts_and_the_other_waits(tmp_path: Path) -> None:
    folder, log = tmp_path / "model", tmp_path / "log"
    both = [converter(folder, log, 0.02) for _ in range(2)]
    for process in both:
        out, _ = process.communicate(timeout=120)
        assert out.split() == ["ready", "done"]
        assert process.returncode == 0
    assert log.read_text() == "started\n"
    assert contents_are_right(folder)


def test_killed_at_random_moments_it_never_leaves_half_a_folder(tmp_path: Path) -> None:
    folder, log = tmp_path / "model", tmp_path / "log"
    moments = random.Random(0)
    killed = 0
    for _ in range(5):
        process = converter(folder, log, 0.02)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(moments.uniform(0.0, 0.45))  # a whole conversion takes at least 20 * 0.02 s
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
        # What stands under the name, if anything does, is whole.
        assert not folder.exists() or (is_whole(folder, hashes=True) and contents_are_right(folder))
        if folder.exists():
            break
    assert killed
    last = converter(folder, log, 0.0)
    assert last.communicate(timeout=120)[0].split() == ["ready", "done"]
    assert contents_are_right(folder)
    assert not list(tmp_path.glob(".*.partial"))
