import os

import pytest

from peira.sandbox import Limits, Outcome, UnsafeProcessSandbox
from peira.sandbox.pool import close_pools

BOX = UnsafeProcessSandbox(limits=Limits(wall_s=2), warm=0)


@pytest.fixture(scope="module", autouse=True)
def no_guests_left():
    yield
    close_pools()


def run(code: str, **options):
    return BOX.run(["{python}", "main.py"], files={"main.py": code.encode()}, **options)


def test_it_runs_programs_and_removes_their_folder():
    done = run("import os\nprint(input(), os.getcwd())\n", stdin=b"hello")
    word, folder = done.stdout.decode().split()
    assert word == "hello"
    assert not os.path.exists(folder)


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("while True: pass", Outcome.TIMEOUT),
        ("x = bytearray(2**31)", Outcome.MEMORY),
        ("while True: print('x' * 1000)", Outcome.OUTPUT_LIMIT),
        ("import os; os.kill(os.getpid(), 11)", Outcome.CRASHED),
        ("def f(:", Outcome.COMPILE_ERROR),
    ],
)
def test_limits_on_time_memory_and_output_hold(code, outcome):
    assert run(code, limits=Limits(wall_s=0.7)).outcome is outcome


def test_functions_can_be_called():
    with BOX.session() as session:
        session.load("def f(x): return x + 1\n")
        assert session.call("f", [1]).value == 2
