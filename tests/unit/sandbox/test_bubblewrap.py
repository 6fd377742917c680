import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from peira import errors
from peira.errors import SandboxError
from peira.sandbox import BubblewrapSandbox, Limits, Outcome, open_sandbox, probe
from peira.sandbox.guest import Foreign
from peira.sandbox.pool import close_pools

PROBE = probe()
pytestmark = pytest.mark.skipif(not PROBE.checks, reason=f"no isolation on this machine: {PROBE.detail}")

BOX = BubblewrapSandbox(limits=Limits(wall_s=3), warm=1)


@pytest.fixture(scope="module", autouse=True)
def no_guests_left():
    yield
    close_pools()


def run(code: str, **options):
    return BOX.run(["{python}", "main.py"], files={"main.py": textwrap.dedent(code).encode()}, **options)


def test_every_escape_of_the_probe_is_tried_and_fails():
    assert len(PROBE.checks) >= 13
    assert PROBE.checks == dict.fromkeys(PROBE.checks, True)
    assert PROBE.works


@pytest.mark.skipif(os.getuid() != 0, reason="only root can try it as another user")
@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv")
def test_it_holds_for_an_ordinary_user_too(tmp_path):
    (tmp_path / "peira").mkdir()
    for name in ("__init__.py", "errors.py", "sandbox", "py.typed"):
        source = Path(errors.__file__).parent / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / "peira" / name)
    for path in (*tmp_path.parents[:2], tmp_path, *tmp_path.rglob("*")):
        path.chmod(path.stat().st_mode | 0o055)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from peira.sandbox import probe; print(probe())"
    )
    python = next((p for p in ("/usr/bin/python3.11", "/usr/bin/python3.12") if os.path.exists(p)), None)
    if python is None:
        pytest.skip("the interpreter of this environment is in a folder that only root can enter")
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", python, "-I", "-B", "-c", code]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert said.stdout.startswith("Probe(works=True"), said.stdout + said.stderr
    assert "user='user namespace'" in said.stdout


def test_a_program_reads_its_input_and_its_files_and_its_output_comes_back_unchanged():
    code = """
        import sys
        sys.stdout.buffer.write(sys.stdin.buffer.read() + open("data/blob", "rb").read())
        sys.stderr.write("noted")
        sys.exit(3)
    """
    every_byte = bytes(range(256))
    done = BOX.run(
        ["{python}", "main.py"],
        stdin=every_byte * 1000,  # more than a pipe holds
        files={"main.py": textwrap.dedent(code).encode(), "data/blob": b"\0\xff"},
    )
    assert (done.outcome, done.exit_code) == (Outcome.EXITED, 3)
    assert done.stdout == every_byte * 1000 + b"\0\xff"
    assert done.stderr == b"noted"
    assert not done.ok
    assert done.peak_memory_bytes > 1_000_000


def test_any_command_of_the_system_runs():
    assert BOX.run(["/bin/cat", "a"], files={"a": b"hello"}).stdout == b"hello"
    piped = BOX.run(["/bin/sh", "-c", "cat a | wc -c"], files={"a": b"hello"}, limits=Limits(processes=8))
    assert piped.stdout.strip() == b"5"


def test_the_interpreter_can_be_given_options():
    assert BOX.run(["{python}", "-c", "print(6 * 7)"]).stdout == b"42\n"


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("while True: pass", Outcome.TIMEOUT),
        ("import time; time.sleep(60)", Outcome.TIMEOUT),
        ("x = bytearray(2**30)", Outcome.MEMORY),
        ("while True: print('x' * 1000)", Outcome.OUTPUT_LIMIT),
        ("import os; os.kill(os.getpid(), 11)", Outcome.CRASHED),
        ("import os; os.kill(os.getppid(), 9); os.kill(os.getpid(), 9)", Outcome.CRASHED),
        ("def f(:", Outcome.COMPILE_ERROR),
        ("raise ValueError", Outcome.EXITED),
    ],
)
def test_the_outcome_says_what_ended_a_program(code, outcome):
    assert run(code, limits=Limits(wall_s=0.7)).outcome is outcome


def test_threads_run_and_fork_does_not():
    code = """
        import os, threading
        threading.stack_size(2**20)
        found = []
        workers = [threading.Thread(target=found.append, args=(i,)) for i in range(8)]
        for w in workers: w.start()
        for w in workers: w.join()
        print(len(found))
        try: os.fork()
        except PermissionError: print("no fork")
        try: os.posix_spawn("/bin/true", ["true"], {})
        except PermissionError: print("no spawn")
    """
    assert run(code).stdout == b"8\nno fork\nno spawn\n"


def test_memory_that_no_limit_counts_cannot_be_had():
    code = """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        try: os.memfd_create("x"); print("memfd")
        except PermissionError: pass
        if libc.shmget(0, 4096, 0o1600) >= 0: print("shmget")
        print("done")
    """
    assert run(code).stdout == b"done\n"


def test_the_first_session_after_another_sees_none_of_its_files():
    with BOX.session() as one, BOX.session() as two:
        one.write("a", b"1")
        assert one.run(["/bin/ls"]).stdout == b"a\n"
        assert two.run(["/bin/ls"]).stdout == b""


def test_a_file_cannot_be_written_outside_of_the_working_directory():
    with BOX.session() as session:
        for path in ("/etc/x", "../x", "a/../../x"):
            with pytest.raises(SandboxError, match="inside the working directory"):
                session.write(path, b"")
        with pytest.raises(SandboxError, match="expected at most"):
            session.write("big", bytes(60 * 1024**2))
    with replace(BOX, tmp_bytes=2**20).session() as session, pytest.raises(SandboxError, match="ENOSPC"):
        session.write("big", bytes(2**21))


def test_calls_take_and_return_plain_data_and_keep_the_module_between_them():
    with BOX.session() as session:
        names = session.load(
            "seen = []\ndef f(x, *, k=0):\n    seen.append(x)\n    return seen, k\n"
            "class C:\n    def m(self): return 7\n"
        )
        assert names == ("seen", "f", "C")
        assert session.call("f", [(1, {2})], {"k": 2.5}).value == ([(1, {2})], 2.5)
        assert session.call("f", [b"\0"]).value == ([(1, {2}), b"\0"], 0)
        assert session.call("C.m").value == 7
        assert session.call("missing").error[0] == "builtins.AttributeError"
        assert session.call("f", [1], {"wrong": 2}).error[0] == "builtins.TypeError"


def test_an_object_that_is_no_plain_data_comes_back_as_its_name_only():
    source = """
class Liar(int):
    def __eq__(self, other): return True
    def __reduce__(self): raise SystemExit
def liar(): return Liar(0)
def table():
    from collections import OrderedDict
    return OrderedDict(a=1)
"""
    with BOX.session() as session:
        session.load(source)
        liar, table = session.call("liar").value, session.call("table").value
        assert isinstance(liar, Foreign)
        assert (liar.type_name, liar.value) == ("Liar", None)
        assert (table.type_name, table.value) == ("OrderedDict", {"a": 1})


def test_a_program_that_ends_during_a_call_has_not_answered_it():
    with BOX.session() as session:
        session.load("import os\ndef f(code): os._exit(code)\n")
        ended = session.call("f", [0]).ended
        assert (ended.outcome, ended.exit_code) == (Outcome.EXITED, 0)
        assert session.call("f", [0]).ended.outcome is Outcome.CRASHED
        assert session.load("def g(): return 1\n") == ("g",)
        assert session.call("g").value == 1


def test_an_idle_interpreter_that_dies_is_replaced():
    box = replace(BOX, tmp_bytes=3 * 1024**2, warm=2)
    box.run(["/bin/true"])
    time.sleep(1.0)
    for child in psutil.Process().children():
        if child.name() == "bwrap":
            child.kill()
            child.wait()
    assert box.run(["/bin/echo", "up"]).stdout == b"up\n"


def test_guests_die_with_the_process_that_started_them():
    code = """
        import os, sys
        from peira.sandbox import BubblewrapSandbox, Limits
        box = BubblewrapSandbox(limits=Limits(wall_s=60), warm=2)
        with box.session() as session:
            print(os.getpid(), flush=True)
            session.run(["/bin/sleep", "54321.75"])
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    child.stdout.readline()
    deadline = time.monotonic() + 20
    while not sleepers("54321.75") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sleepers("54321.75")
    child.kill()
    child.wait()
    child.stdout.close()
    while sleepers("54321.75") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not sleepers("54321.75")


def sleepers(argument: str) -> list[int]:
    return [p.pid for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["/bin/sleep", argument]]


def test_a_forked_process_starts_guests_of_its_own():
    code = """
        import os
        from peira.sandbox import BubblewrapSandbox
        box = BubblewrapSandbox(warm=1)
        assert box.run(["/bin/echo", "parent"]).stdout == b"parent\\n"
        child = os.fork()
        if child == 0:
            os._exit(0 if box.run(["/bin/echo", "child"]).stdout == b"child\\n" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert box.run(["/bin/echo", "parent"]).stdout == b"parent\\n"
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()


def test_threads_share_a_pool_and_a_thread_that_ends_takes_no_guest_with_it():
    box = replace(BOX, tmp_bytes=5 * 1024**2, warm=3)
    results = []

    def work():
        results.append(box.run(["{python}", "main.py"], files={"main.py": b"print(1)"}).stdout)

    for _ in range(2):
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    work()
    assert results == [b"1\n"] * 7


def test_a_sandbox_travels_to_another_process():
    assert pickle.loads(pickle.dumps(BOX)) == BOX


def test_nothing_of_the_environment_or_the_users_folders_is_inside(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    code = """
        import os
        print("SECRET_TOKEN" in os.environ, os.path.exists(%r), os.path.exists("/etc/passwd"), os.getcwd())
    """
    cold = replace(BOX, warm=0)
    done = cold.run(["{python}", "m.py"], files={"m.py": textwrap.dedent(code % os.getcwd()).encode()})
    assert done.stdout == b"False False False /sandbox\n"


def test_without_bubblewrap_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxError, match=r"apt-get install bubblewrap.*allow_unsafe: true"):
        open_sandbox(warm=0)
    assert type(open_sandbox(warm=0, allow_unsafe=True)).__name__ == "UnsafeProcessSandbox"
    assert not probe().works
