"""Silence ends the process; progress does not."""

import io
import time

from peira.trainer.watchdog import Watchdog


def test_silence_names_the_stage_and_leaves_with_its_code(capfd):
    left = []
    with Watchdog(0.2, leave=left.append) as dog:
        dog.beat("sample")
        time.sleep(1.0)
    assert left == [7]
    assert "stage 'sample' made no progress" in capfd.readouterr().err


def test_silence_ends_a_notebook_too_whose_stderr_is_no_file(monkeypatch):
    left = []
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with Watchdog(0.2, leave=left.append) as dog:
        dog.beat("sample")
        time.sleep(1.0)
    assert left == [7]


def test_progress_keeps_it_quiet():
    left = []
    with Watchdog(2.0, leave=left.append) as dog:
        for _ in range(10):
            dog.beat("learn")
            time.sleep(0.02)
    assert left == []
