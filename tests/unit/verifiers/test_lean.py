"""The Lean verifier on a stand-in: no Lean is needed, and none is tested.

Each row is one way to pass off something else as a proof, with what Lean's documentation says its programs
answer to it.
"""

import json
import shutil
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from peira.errors import SandboxError, VerifierError
from peira.sandbox import open_sandbox
from peira.sandbox.bubblewrap import base_interpreter
from peira.types.rollout import StopReason
from peira.types.task import Task
from peira.types.verdict import Attempt, VerdictStatus
from peira.verifiers.proof.lean import LeanInstallation, LeanVerifier
from peira.verifiers.proof.lean_source import bare, declares, refusal, without_imports
from peira.verifiers.proof.repl import Repl, ReplGone, ReplPool, ReplSettings, problems

ADD = {"name": "add_zero'", "statement": "∀ n : Nat, n + 0 = n"}
ROWS = json.loads(Path(__file__).with_name("lean_rows.json").read_text())
"""A marker, a submission with it, what the programs answer, and what the verdict starts with."""


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lean")
    shutil.copy(Path(__file__).with_name("lean_standin.py"), folder / "standin.py")
    table = [{"marker": row["marker"], "check": {}, **row["replies"]} for row in ROWS]
    (folder / "table.json").write_text(json.dumps(table))
    (folder / "bin").mkdir()
    for program, path in (("lean", "bin/lean"), ("replay", "lean4checker"), ("repl", "repl")):
        script = folder / path
        script.write_text(f'#!/bin/sh\nexec {base_interpreter()} {folder}/standin.py {program} "$@"\n')
        script.chmod(0o755)
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def lean(tools):
    installation = LeanInstallation.find(str(tools / "bin/lean"))
    return LeanVerifier(
        sandbox=open_sandbox(readable=installation.readable, allow_unsafe=True),
        installation=installation,
        trust="replay",
        replay=str(tools / "lean4checker"),
    )


def judge(verifier, text, theorem=ADD, **attempt):
    return verifier.verify(Task(id="t", prompt="", info={"theorem": theorem}), Attempt(text=text, **attempt))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["marker"])
def test_every_row_of_the_list_ends_as_it_should(lean, row):
    verifier = replace(lean, cpu_s=2) if "seconds" in row["replies"] else lean
    verdict = judge(verifier, f"```lean\n{row['submission']}\n```")
    assert verdict.detail.startswith(row["expected"]), verdict.detail
    assert verdict.score == float(row["expected"].startswith("proved"))
    assert verdict.judged


def test_the_lower_level_of_trust_misses_what_only_a_replay_finds(lean):
    text = next(row["submission"] for row in ROWS if row["marker"] == "Le21")
    assert judge(lean, text).detail.startswith("kernel")
    assert judge(replace(lean, trust="environment"), text).score == 1.0


def test_the_installation_is_asked_for_where_it_is(tools):
    found = LeanInstallation.find(str(tools / "bin/lean"))
    assert found == LeanInstallation(lean=str(tools / "bin/lean"), prefix=str(tools))
    assert found.readable == (str(tools),)
    with pytest.raises(VerifierError, match="no-such-lean: expected Lean 4 on the PATH; install elan"):
        LeanInstallation.find("no-such-lean")


def test_without_lean_nothing_is_judged(lean):
    gone = replace(lean, installation=LeanInstallation(lean="/nowhere/lean"))
    with pytest.raises(VerifierError, match="/nowhere/lean: expected it to be there"):
        judge(gone, "by rfl -- Le1")
    with pytest.raises(VerifierError, match="no-such-checker: expected it to be there"):
        judge(replace(lean, replay="no-such-checker"), "by rfl -- Le1")


def test_characters_that_are_none_are_judged(lean, tools):
    quick = replace(lean, repl=str(tools / "repl"))
    for verifier in (lean, quick):
        assert judge(verifier, "by rfl -- \ud800 Le1").score == 1.0


def test_a_theorem_that_does_not_compile_is_our_fault(lean):
    with pytest.raises(VerifierError, match=r"task 't': info.theorem: does not compile: unknown identifier"):
        judge(lean, "by rfl -- Le1", {**ADD, "statement": "BROKEN"})


@pytest.mark.parametrize("text", ["", "  ", "<think>by rfl", "```python\n1\n```"])
def test_without_a_proof_there_is_nothing_to_judge(lean, text):
    assert judge(lean, text).status is VerdictStatus.UNPARSEABLE
    assert judge(lean, text, stop_reason=StopReason.LENGTH).status is VerdictStatus.TRUNCATED


@dataclass(frozen=True)
class BrokenSandbox:
    def session(self):
        raise SandboxError("sandbox: start: no namespaces here")


def test_a_broken_sandbox_leaves_the_proof_unjudged(lean):
    with pytest.raises(VerifierError, match="the proof is unjudged: sandbox: start"):
        judge(replace(lean, sandbox=BrokenSandbox()), "by rfl -- Le1")


def test_a_reply_that_is_no_reply_is_ours(lean):
    with pytest.raises(VerifierError, match=r"checker\.lean: expected one line of JSON"):
        judge(lean, "by rfl -- of no row of the table")  # the stand-in ends with an exception


# --- the pool of REPLs -----------------------------------------------------------------------------------


@pytest.fixture
def settings(lean, tools):
    return ReplSettings(sandbox=lean.sandbox, argv=(str(tools / "repl"),), memory_bytes=2**31)


@pytest.fixture
def pool():
    pool = ReplPool(size=1)
    yield pool
    pool.close()


def ask(pool, settings, command, header="import Nothing", wall_s=20):
    return pool.ask(settings, header, command, start_s=60, wall_s=wall_s)


def test_a_repl_is_started_once_per_header_and_every_command_branches_from_it(pool, settings):
    replies = [ask(pool, settings, f"theorem t{i} : True := trivial") for i in range(3)]
    assert [reply["env"] for reply in replies] == [1, 2, 3]  # one process: environments go on counting
    repl = pool._open[settings, "import Nothing"]
    log = repl._session.run(["/bin/cat", "asked.jsonl"]).stdout.decode().splitlines()
    assert [json.loads(line).get("env") for line in log] == [None, 0, 0, 0]
    assert ask(pool, settings, "x", header="import Other")["env"] == 1
    assert len(pool._open) == 1  # the least recently used made room


def test_a_used_up_repl_is_replaced(pool, settings):
    short = replace(settings, uses=2)
    assert [ask(pool, short, "x")["env"] for _ in range(5)] == [1, 2, 1, 2, 1]


def test_a_crash_is_tried_again_on_a_fresh_repl_and_then_told(pool, settings):
    assert ask(pool, settings, "x")["env"] == 1
    with pytest.raises(ReplGone):
        ask(pool, settings, "CRASH")
    assert ask(pool, settings, "x")["env"] == 1


def test_a_header_that_does_not_compile_is_our_fault(settings):
    with pytest.raises(VerifierError, match="header: expected it to compile; unknown module"):
        Repl(settings, "import BROKEN", start_s=60)


def test_a_program_that_is_no_repl_is_our_fault(settings):
    with pytest.raises((VerifierError, ReplGone)):
        Repl(replace(settings, argv=("/bin/true",)), "import Nothing", start_s=60)
    with pytest.raises(VerifierError, match="nowhere/repl"):
        Repl(replace(settings, argv=("/nowhere/repl",)), "import Nothing", start_s=60)


def test_a_repl_that_finds_an_error_saves_the_compilation_and_one_that_finds_none_proves_nothing(lean, tools):
    quick = replace(lean, repl=str(tools / "repl"))
    assert judge(quick, "by decide -- Le41").detail.startswith(
        "compile: Submission.lean:3:2: error: decide failed"
    )
    assert judge(quick, "by admit -- Le4").detail.startswith("axioms")  # the REPL had no objection
    assert judge(quick, "by rfl -- Le1").score == 1.0


def test_a_crash_of_the_repl_leaves_the_verdict_to_the_compiler(lean, tools):
    quick = replace(lean, repl=str(tools / "repl"))
    assert judge(quick, "by exact CRASH -- Le1").score == 1.0


def test_problems_of_a_reply_are_errors_and_sorries():
    assert problems({"env": 1}) == ""
    assert problems({"messages": [{"severity": "warning", "data": "x"}]}) == ""
    assert problems({"messages": [{"severity": "error", "data": "a\n b"}]}) == "a b"
    assert problems({"sorries": [{"goal": "False"}]}) == "rests on sorry"
    assert problems({"message": "Could not parse"}) == "Could not parse"


# --- the screen ------------------------------------------------------------------------------------------


def test_comments_strings_and_characters_are_blanked():
    source = 'a /- b /- c -/ d -/ e -- f\n"g \\" h" r#"i " j"# k \'"\' l\' \'x\''
    assert bare(source).split() == ["a", "e", "k", "l'"]
    for unfinished in ("/- a", 'b "c', 'r#"d"'):
        assert bare(unfinished) is None
        assert refusal(unfinished).startswith("unfinished")


@pytest.mark.parametrize(
    "source",
    [
        "#eval 1",
        'run_cmd Lean.logInfo "x"',
        "initialize x : IO Unit",
        'elab "x" : tactic => pure ()',
        "def f : IO Unit := pure ()",
        "open Lean Elab in def f : Command.CommandElabM Unit := pure ()",
        "def f := «IO».println",
        "#eval! 1",
        "theorem t := by run_tac pure ()",
        "set_option debug.skipKernelTC true",
        "@[implemented_by g] def f := 1",
        '@[extern "f"] opaque g : Nat',
        "unsafe def f := 1",
        "Lean.Elab.Command.elabCommand",
        "simproc s (x) := fun _ => pure",
    ],
)
def test_what_runs_code_while_compiling_is_refused(source):
    assert refusal(source).startswith("not permitted")


@pytest.mark.parametrize(
    "source",
    [
        "theorem t : True := trivial",
        "open Nat in theorem t : Fin.init = x := by simp [IOta, elaborate]",
        '-- #eval IO.println\n/- run_cmd -/ theorem t : "#eval" = "#eval" := rfl',
        "local notation \"N\" => Nat\nset_option maxHeartbeats 0 in theorem t : x' = 'a' := sorry",
        "by native_decide",
    ],
)
def test_ordinary_proofs_pass_the_screen(source):
    assert refusal(source) is None


@given(
    st.lists(
        st.sampled_from(["/-", "-/", "--", '"', "'", "r#", "«", "»", "IO", ".", " ", "\n"])
        | st.text(max_size=3),
        max_size=30,
    ).map("".join)
)
@hypothesis_settings(max_examples=500, deadline=None)
def test_any_text_at_all_is_refused_or_passed(text):
    assert refusal(text) is None or isinstance(refusal(text), str)


def test_imports_are_left_out_and_declarations_found():
    assert without_imports("import Mathlib\n  import A.B\ntheorem t := 1").strip() == "theorem t := 1"
    assert declares("@[simp] theorem t (x : Nat) : True := trivial", "t")
    assert declares("lemma add_zero' : True := trivial", "add_zero'")
    assert not declares("theorem t' : True := trivial", "t")
    assert not declares("theorem t.u : True := trivial", "t")
    assert not declares("-- theorem t : True", "t")
    assert not declares("by exact theorem_t", "t")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ['"', "/-", "-/", 'r#"', "'", "«", "a.", "#", "--\n"])
def test_hostile_repetition_takes_linear_time(piece):
    refusal(piece * 50_000)


def test_shipped_theorems_have_what_the_verifier_reads():
    rows = json.loads((files("peira") / "verifiers/proof/tasks/lean.json").read_text())
    for row in rows:
        assert {"name", "statement"} <= set(row["theorem"]) <= {"name", "statement", "imports", "definitions"}
        assert row["theorem"]["statement"] in row["prompt"]
        assert refusal(row["answer"]) is None
    assert len({row["id"] for row in rows}) == len(rows) >= 20
