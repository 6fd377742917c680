"""Every way of the list to pass off something else as a proof, tried on the real prover."""

import json
import shutil
from dataclasses import dataclass, replace
from importlib.resources import files

import pytest

from peira.errors import SandboxError, VerifierError
from peira.sandbox import Execution, Limits, Outcome, Sandbox, open_sandbox
from peira.types.rollout import StopReason
from peira.types.task import Task
from peira.types.verdict import Attempt, VerdictStatus
from peira.verifiers.proof.coq import READABLE, CoqVerifier, failed_check

needs_coq = pytest.mark.skipif(
    shutil.which("coqc") is None or shutil.which("coqchk") is None,
    reason="needs the Rocq prover: apt-get install coq",
)

ADD = {"name": "add_zero", "statement": "forall n : nat, n + 0 = n"}
PROOF = "intros n. induction n as [|n IH].\n- reflexivity.\n- simpl. rewrite IH. reflexivity.\n"
FILE = f"Theorem add_zero : forall n : nat, n + 0 = n.\nProof.\n{PROOF}Qed.\n"
FALSE = {"name": "absurd", "statement": "1 = 2"}


@pytest.fixture(scope="module")
def coq():
    return CoqVerifier(sandbox=open_sandbox(readable=READABLE, allow_unsafe=True))


def judge(verifier, text, theorem=ADD, **attempt):
    return verifier.verify(Task(id="t", prompt="", info={"theorem": theorem}), Attempt(text=text, **attempt))


def rejected(verdict, reason):
    assert verdict.score == 0.0
    assert verdict.detail.startswith(reason), verdict.detail
    return True


@needs_coq
@pytest.mark.parametrize(
    "text",
    [
        FILE,  # Q1: a whole file
        PROOF,  # a bare proof
        f"Proof.\n{PROOF}Qed.",
        f"I use induction:\n```coq\n{FILE}```\nas asked.",
        f"<think>```coq\nAbort.\n```</think>\n```\n{PROOF}```",
        FILE.replace("Proof.", "(* Admitted. would be cheating *) Proof."),  # Q20
        "Lemma helper : forall n, S n + 0 = S (n + 0). Proof. reflexivity. Qed.\n" + FILE,
    ],
)
def test_an_honest_proof_is_accepted_in_every_form(coq, text):
    verdict = judge(coq, text)
    assert verdict.score == 1.0, verdict.detail
    assert verdict.detail == "proved"


@needs_coq
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Theorem absurd : 1 = 2. Admitted.", "axioms: rests on"),  # Q2
        ("Admitted.", "axioms: rests on"),
        ("Axiom absurd : 1 = 2.", "axioms: rests on"),  # Q4
        ("Parameter p : 1 = 2. Definition absurd := p.", "axioms: rests on"),
        ("Conjecture c : False. Theorem absurd : 1 = 2. destruct c. Qed.", "axioms: rests on"),
        ("Declare Instance i : False. Theorem absurd : 1 = 2. destruct i. Qed.", ""),
        (
            "Module Type M. Axiom c : False. End M. Declare Module N : M."
            " Theorem absurd : 1 = 2. destruct N.c. Qed.",
            "axioms: rests on",
        ),
        # Q5: closed, the section turns its variable into a hypothesis; open, the file is unfinished
        ("Section S. Variable h : False. Theorem absurd : 1 = 2. destruct h. Qed. End S.", "statement"),
        ("Section S. Variable h : False. Theorem absurd : 1 = 2. destruct h. Qed.", "compile"),
        ("Variable h : False. Theorem absurd : 1 = 2. destruct h. Qed.", "axioms: rests on"),
        # Q12: notations before the statement
        ('Notation "x = y" := True : type_scope. Theorem absurd : 1 = 2. exact I. Qed.', "statement"),
        ("Definition eq {A} (x y : A) := True. Theorem absurd : eq 1 2. exact I. Qed.", "statement"),
        ("Notation nat := True (only parsing). Theorem absurd : 1 = 1. reflexivity. Qed.", "statement"),
        # Q16: another lemma under the name
        ("Theorem absurd : 1 = 2. Abort. Theorem absurd : True. exact I. Qed.", "statement"),
        ("Theorem absurd : True -> 1 = 1. reflexivity. Qed.", "statement"),
        ("Theorem absurd : False -> 1 = 2. intros []. Qed.", "statement"),
        ("Goal 1 = 1. reflexivity. Qed. Theorem absurd : 1 = 2. Abort.", "statement"),
        # Q18: wrappers that let a failure pass
        ("Fail Theorem absurd : 1 = two.", "statement"),
        ("Theorem absurd : 1 = 2. Fail Qed. Abort.", "statement"),
        ("Theorem absurd : 1 = 2. try reflexivity. Fail Timeout 1 Qed. Abort.", "statement"),
        ("Succeed Theorem absurd : 1 = 2.", "statement"),
        # a module under the name of ours
        (
            "Module Problem. Definition trusted_statement := True. End Problem. Definition absurd := I.",
            "statement",
        ),
        ("reflexivity.", "compile"),
        ("Qed.", "compile"),
    ],
)
def test_what_is_no_proof_is_rejected_on_the_kernels_evidence(coq, text, reason):
    assert rejected(judge(coq, text, FALSE), reason)


GUARD = (
    "Unset Guard Checking. Fixpoint f (n : nat) : 1 = 2 := f n. Set Guard Checking. Definition absurd := f 0."
)
POSITIVITY = (
    "#[bypass_check(positivity)] Inductive bad := B : (bad -> 1 = 2) -> bad."
    " Definition g (x : bad) : 1 = 2 := match x with B h => h x end. Definition absurd := g (B g)."
)
UNIVERSES = f"Unset Universe Checking. {FILE}"
SWITCHES = ("Unset Guard", "Set Guard", "Unset Universe", "bypass_check", "positivity", "guard", "universes")


@needs_coq
@pytest.mark.parametrize("text", [GUARD, POSITIVITY, GUARD.replace("Unset", "Global Unset")])
def test_switched_off_checks_are_refused_and_would_be_found_by_the_kernel_too(coq, text):
    # Q6, Q8: first the screen; then, with the screen opened, Print Assumptions; then the checker alone
    assert rejected(judge(coq, text, FALSE), "refused")
    opened = replace(coq, permitted=SWITCHES)
    assert rejected(judge(opened, text, FALSE), "axioms")


@needs_coq
def test_a_collapsed_hierarchy_is_refused_and_would_be_found_by_the_kernel_too(coq):
    # Q9; the proof itself is honest, what it was checked with is not
    assert rejected(judge(coq, UNIVERSES), "refused")
    assert rejected(judge(replace(coq, permitted=SWITCHES), UNIVERSES), "axioms")
    flag = f'(* -*- coq-prog-args: ("-type-in-type") -*- *)\n{FILE}'
    assert judge(coq, flag).score == 1.0  # a remark to an editor changes nothing
    hidden = flag + "Definition t : Type@{Set} := Set."
    assert rejected(judge(coq, hidden), "compile")


@needs_coq
def test_the_checker_finds_alone_what_is_not_shown_by_name(coq):
    checked = "".join(f"Checking library: Troot.{name}\n" for name in ("Problem", "Submission", "Check"))
    report = (
        f"{checked}Modules were successfully checked\n\nCONTEXT SUMMARY\n===\n\n"
        "* Theory: Set is predicative\n* Axioms: <none>\n"
        "* Constants/Inductives relying on type-in-type: <none>\n"
        "* Constants/Inductives relying on unsafe (co)fixpoints:\n    Troot.Submission.loop\n"
    )
    assert rejected(coq._summary([], report, "Troot"), "kernel: Constants/Inductives relying on unsafe")
    assert coq._summary([], report.replace("Troot.Submission.loop", "Other.loop"), "Troot").score == 1.0


@needs_coq
@pytest.mark.parametrize("report", ["", "Modules were successfully checked\nCONTEXT SUMMARY\n"])
def test_a_checker_that_does_not_say_what_it_checked_has_checked_nothing(coq, report):
    with pytest.raises(VerifierError, match="coqchk: expected it to say"):
        coq._summary([], report, "Troot")


CLASSIC = """Require Import Classical.
Theorem absurd : forall P : Prop, P \\/ ~ P. Proof. exact classic. Qed."""
MIDDLE = {"name": "absurd", "statement": "forall P : Prop, P \\/ ~ P"}


@needs_coq
def test_axioms_of_the_standard_library_pass_when_listed(coq):
    # Q10
    verdict = judge(coq, CLASSIC, MIDDLE)
    assert verdict.score == 1.0
    assert verdict.detail == "proved, with Classical_Prop.classic"
    assert rejected(
        judge(replace(coq, axioms=()), CLASSIC, MIDDLE), "axioms: rests on Classical_Prop.classic"
    )


@needs_coq
def test_an_axiom_of_ones_own_under_a_listed_name_is_found(coq):
    own = "Module Classical_Prop. Axiom classic : False. End Classical_Prop."
    text = f"{own} Theorem absurd : 1 = 2. destruct Classical_Prop.classic. Qed."
    assert rejected(judge(coq, text, FALSE), "axioms: rests on")
    both = f"Require Import Classical. {text}"
    assert rejected(judge(coq, both, FALSE), "axioms: rests on")


@needs_coq
def test_axioms_of_the_tasks_own_definitions_are_part_of_the_task(coq):
    theorem = {
        "name": "t",
        "definitions": "Parameter A : Type. Parameter f : A -> A. Axiom twice : forall x, f (f x) = x.",
        "statement": "forall x : A, f (f (f x)) = f x",
    }
    verdict = judge(coq, "intros x. rewrite twice. reflexivity.", theorem)
    assert verdict.score == 1.0, verdict.detail
    redefined = "Parameter f : A -> A. Axiom mine : forall x, f (f (f x)) = f x. Definition t := mine."
    assert rejected(judge(coq, redefined, theorem), "statement")


@needs_coq
def test_definitions_of_the_task_cannot_be_weakened(coq):
    theorem = {
        "name": "t",
        "definitions": "Inductive even : nat -> Prop := E0 : even 0 | E2 n : even n -> even (S (S n)).",
        "statement": "even 4",
    }
    assert judge(coq, "repeat constructor.", theorem).score == 1.0
    weaker = "Inductive even : nat -> Prop := All n : even n. Theorem t : even 4. Proof. constructor. Qed."
    assert rejected(judge(coq, weaker, theorem), "statement")


@needs_coq
@pytest.mark.parametrize(
    "text",
    [
        'Declare ML Module "ltac_plugin". ' + FILE,  # Q13
        'Redirect "stolen" Print nat. ' + FILE,
        'Extraction "stolen" nat. ' + FILE,
        'Add LoadPath "x" as Coq. ' + FILE,
        'Load "/etc/passwd". ' + FILE,
    ],
)
def test_what_would_run_code_or_write_files_is_not_even_compiled(coq, text):
    calls = []
    counting = CountingSandbox(coq.sandbox, calls)
    assert rejected(judge(replace(coq, sandbox=counting), text), "refused")
    assert calls == []


@needs_coq
def test_a_library_that_only_the_completion_knows_is_not_found(coq):
    # Q14: the load path is ours and holds nothing of the submission
    assert rejected(
        judge(coq, "Require Import Answer. Definition absurd := Answer.absurd.", FALSE), "compile"
    )
    local = "Module Arith. Axiom absurd : 1 = 2. End Arith. Import Arith. Definition absurd := absurd."
    assert rejected(judge(coq, local, FALSE), "axioms")


@dataclass(frozen=True)
class CountingSandbox:
    inner: Sandbox
    calls: list

    limits = Limits()
    __hash__ = object.__hash__

    def session(self):
        self.calls.append("session")
        return self.inner.session()


class TamperedSession:
    def __init__(self, inner, change):
        self.inner, self.change = inner, change

    def __enter__(self):
        self.inner.__enter__()
        return self

    def __exit__(self, *error):
        self.inner.__exit__(*error)

    def write(self, path, data):
        self.inner.write(path, self.change(data) if path == "Submission.vo" else data)

    def run(self, argv, **options):
        return self.inner.run(argv, **options)


@dataclass(frozen=True)
class TamperingSandbox:
    """Delivers another compiled file than the one that was made."""

    inner: Sandbox
    change: object

    limits = Limits()
    __hash__ = object.__hash__

    def session(self):
        return TamperedSession(self.inner.session(), self.change)


@needs_coq
@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b"add_zero", b"add_zerp"),
        lambda data: b"",
        lambda data: bytes([data[0] ^ 1]) + data[1:],
    ],
    ids=["cut", "renamed", "empty", "magic"],
)
def test_a_compiled_file_that_was_tampered_with_is_rejected(coq, change):
    # Q17: nobody can hand in a compiled file; were one changed on the way, it would not pass
    tampering = replace(coq, sandbox=TamperingSandbox(coq.sandbox, change))
    verdict = judge(tampering, FILE)
    assert verdict.score == 0.0
    assert verdict.detail.split(":")[0] in ("statement", "kernel")


@needs_coq
@pytest.mark.parametrize("text", ["(* \ud800 *) ", "(* \u202e *) ", "(* \x00 *) "])
def test_characters_that_are_none_are_judged(coq, text):
    assert judge(coq, text + FILE).judged


@needs_coq
@pytest.mark.parametrize("piece", ["(", "fun x => ", "S ("])
def test_deep_nesting_is_judged(coq, piece):
    assert judge(coq, f"Definition d := {piece * 30_000}. {FILE}").score == 0.0


@needs_coq
def test_a_proof_that_takes_too_long_is_stopped_and_scores_nothing(coq):
    slow = "Theorem absurd : 1 = 2. do 10000 (do 10000 (do 10000 idtac)). Qed."
    verdict = judge(replace(coq, cpu_s=2), slow, FALSE)
    assert rejected(verdict, "timeout: while compiling")
    assert verdict.judged


@needs_coq
def test_a_proof_that_a_busy_machine_gave_no_time_is_unjudged(coq):
    slow = "Theorem absurd : 1 = 2. do 10000 (do 10000 (do 10000 idtac)). Qed."
    judge(coq, "reflexivity.", FALSE)  # the statement is compiled in its own time
    verdict = judge(replace(coq, wall_s=1), slow, FALSE)
    assert verdict.status is VerdictStatus.TIMEOUT
    assert verdict.score is None


@pytest.mark.parametrize(
    ("run", "status", "score"),
    [
        (Execution(outcome=Outcome.EXITED, exit_code=1), VerdictStatus.SCORED, 0.0),
        (Execution(outcome=Outcome.TIMEOUT, exit_code=-24), VerdictStatus.TIMEOUT, None),
        (Execution(outcome=Outcome.TIMEOUT), VerdictStatus.TIMEOUT, None),
        (Execution(outcome=Outcome.CRASHED), VerdictStatus.ERROR, None),
        (Execution(outcome=Outcome.MEMORY), VerdictStatus.ERROR, None),
    ],
)
def test_a_check_of_ours_that_does_not_end_gives_no_score(run, status, score):
    verdict = failed_check("kernel", run, "why")
    assert (verdict.status, verdict.score) == (status, score)


@needs_coq
def test_a_proof_that_eats_memory_is_stopped_and_scores_nothing(coq):
    big = "Fixpoint p (n : nat) := match n with 0 => 1 | S m => p m + p m end.\nCompute p 40."
    verdict = judge(replace(coq, memory_bytes=600 * 2**20), f"{big}\n{FILE}")
    assert verdict.score == 0.0
    assert verdict.detail.split(":")[0] in ("memory", "compile", "timeout")


@needs_coq
@pytest.mark.parametrize("text", ["", "   ", "<think>intros.", "```coq\n```", "```python\nprint(1)\n```"])
def test_without_a_proof_there_is_nothing_to_judge(coq, text):
    assert judge(coq, text).status is VerdictStatus.UNPARSEABLE
    assert judge(coq, text, stop_reason=StopReason.LENGTH).status is VerdictStatus.TRUNCATED
    assert judge(coq, text).score == 0.0


@needs_coq
@pytest.mark.parametrize(
    ("info", "words"),
    [
        ({}, "info.theorem = None: expected an object"),
        ({"theorem": {"name": "t"}}, "expected both"),
        ({"theorem": {**ADD, "proof": "x"}}, "theorem.proof = 'x': expected texts named"),
        ({"theorem": {**ADD, "name": 3}}, "theorem.name = 3: expected texts named"),
        ({"theorem": {**ADD, "statement": "forall n, n + = n"}}, "does not compile: Syntax error"),
        ({"theorem": {**ADD, "imports": "Require Import Nowhere."}}, "does not compile: Cannot find"),
    ],
)
def test_a_broken_task_is_our_fault_and_gives_no_score(coq, info, words):
    with pytest.raises(VerifierError, match=r"task 't'") as caught:
        coq.verify(Task(id="t", prompt="", info=info), Attempt(text=PROOF))
    assert words in str(caught.value)


@dataclass(frozen=True)
class BrokenSandbox:
    limits = Limits()

    def session(self):
        raise SandboxError("sandbox: start: no namespaces here")


@needs_coq
def test_a_broken_sandbox_leaves_the_proof_unjudged():
    with pytest.raises(VerifierError, match="the proof is unjudged: sandbox: start"):
        judge(CoqVerifier(sandbox=BrokenSandbox()), FILE)


def test_without_the_prover_nothing_is_judged_and_the_way_to_get_it_is_named():
    verifier = CoqVerifier(sandbox=BrokenSandbox(), coqc="no-such-prover")
    with pytest.raises(VerifierError, match="no-such-prover: expected the Rocq prover on the PATH; apt-get"):
        judge(verifier, FILE)


def shipped():
    return json.loads((files("peira") / "verifiers/proof/tasks/coq.json").read_text())


@needs_coq
@pytest.mark.slow
@pytest.mark.parametrize("row", shipped(), ids=lambda row: row["id"])
def test_the_reference_proof_of_every_shipped_theorem_is_accepted(coq, row):
    verdict = judge(coq, row["answer"], row["theorem"])
    assert verdict.score == 1.0, verdict.detail
    assert row["theorem"]["statement"] in row["prompt"]
