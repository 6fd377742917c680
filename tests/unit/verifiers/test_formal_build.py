import shutil

import pytest
from pydantic import TypeAdapter

from peira.build.data import build_tasks
from peira.build.verifier import build_verifier, build_verifiers
from peira.config.data import DataConfig
from peira.config.verifier import JudgingConfig, VerifierConfig
from peira.errors import ConfigError, VerifierError
from peira.types.verdict import Attempt
from peira.verifiers.check import Example, check_verifier
from peira.verifiers.proof.coq import CoqVerifier
from peira.verifiers.protocol import Verifier
from peira.verifiers.rules.prolog import PrologVerifier

SETTINGS = TypeAdapter(VerifierConfig)
needs_both = pytest.mark.skipif(
    shutil.which("coqc") is None or shutil.which("swipl") is None,
    reason="needs the Rocq prover and SWI-Prolog: apt-get install coq swi-prolog-nox",
)


@needs_both
def test_settings_become_verifiers():
    coq = build_verifier(SETTINGS.validate_python({"kind": "coq", "axioms": [], "recheck": False}))
    assert isinstance(coq, CoqVerifier)
    assert isinstance(coq, Verifier)
    assert (coq.axioms, coq.recheck, coq.cpu_s, coq.wall_s) == ((), False, 20.0, 118.0)
    prolog = build_verifier(SETTINGS.validate_python({"kind": "prolog", "judge": "extensional"}))
    assert isinstance(prolog, PrologVerifier)
    assert (prolog.judge, prolog.partial, prolog.cpu_s) == ("extensional", False, 5.0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kind": "coq", "coqc": "no-such-prover"}, "no-such-prover: expected the Rocq prover"),
        ({"kind": "lean", "lean": "no-such-lean"}, "no-such-lean: expected Lean 4"),
        ({"kind": "prolog", "swipl": "no-such-prolog"}, "no-such-prolog: expected SWI-Prolog"),
    ],
)
def test_a_missing_program_stops_the_run_before_it_starts(settings, words):
    with pytest.raises(VerifierError, match=words):
        build_verifier(SETTINGS.validate_python(settings))


@needs_both
def test_proofs_and_rules_are_judged_in_worker_processes():
    proofs = build_tasks(
        DataConfig(sources=({"path": "theorems:coq", "verifier": "coq", "size": 3},)), seed=0
    )
    rules = build_tasks(
        DataConfig(sources=({"path": "synthetic:induction", "verifier": "prolog", "size": 3},)), seed=0
    )
    tasks = [*proofs.train.draw(2), *rules.train.draw(2)]
    configs = [SETTINGS.validate_python({"kind": kind}) for kind in ("coq", "prolog")]
    with build_verifiers(configs, JudgingConfig(workers=1)) as verifiers:
        right = verifiers.judge_blocking([(task, Attempt(text=task.answer)) for task in tasks])
        wrong = verifiers.judge_blocking([(task, Attempt(text="Admitted.")) for task in tasks])
    assert [next(iter(verdicts.values())).score for verdicts in right] == [1.0] * 4
    assert [next(iter(verdicts.values())).score for verdicts in wrong] == [0.0] * 4


def test_theorems_that_are_not_shipped_are_named():
    with pytest.raises(ConfigError, match="'theorems:rocq': expected one of coq, lean"):
        build_tasks(DataConfig(path="theorems:rocq"), seed=0)


@needs_both
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["coq", "prolog"])
def test_verifiers_pass_the_examination_that_every_verifier_must_pass(kind):
    path = {"coq": "theorems:coq", "prolog": "synthetic:induction"}[kind]
    sets = build_tasks(DataConfig(sources=({"path": path, "size": 3},), held_out_fraction=0), seed=0)
    wrong = {
        "coq": ("Proof. Admitted.", "Proof. intros. reflexivity. Qed. Print nat."),
        "prolog": ("[RULE]chosen(b1).[/RULE]", "[RULE]chosen(X) :- \\+ passed_over(X).[/RULE]"),
    }[kind]
    examples = [Example(task=task, right=task.answer, wrong=wrong) for task in sets.train.tasks[:2]]
    verifier = build_verifier(SETTINGS.validate_python({"kind": kind}))
    findings = check_verifier(verifier, examples, timeout_s=60)
    assert [finding for finding in findings if not finding.passed] == []
