"""Configuration -> verifiers of proofs and rules."""

import shutil
from pathlib import Path

from peira.config.verifier_formal import CoqConfig, LeanConfig, PrologConfig
from peira.sandbox import open_sandbox
from peira.verifiers.proof.coq import READABLE, CoqVerifier
from peira.verifiers.proof.coq import STANDARD_AXIOMS as COQ_AXIOMS
from peira.verifiers.proof.lean import STANDARD_AXIOMS as LEAN_AXIOMS
from peira.verifiers.proof.lean import LeanInstallation, LeanVerifier
from peira.verifiers.rules.prolog import PrologVerifier


def build_coq(config: CoqConfig) -> CoqVerifier:
    """The Rocq verifier, once the prover and a sandbox have been found.

    Raises:
        VerifierError: a program is missing.
        SandboxError: no isolation here and `allow_unsafe` is off.
    """
    verifier = CoqVerifier(
        sandbox=open_sandbox(readable=(*READABLE, *_prefix(config.coqc)), allow_unsafe=config.allow_unsafe),
        coqc=config.coqc,
        coqchk=config.coqchk,
        axioms=COQ_AXIOMS if config.axioms is None else config.axioms,
        recheck=config.recheck,
        cpu_s=config.cpu_s,
        wall_s=_wall_s(config.timeout_s),
        memory_bytes=config.memory_bytes,
    )
    verifier.prepare()
    return verifier


def build_lean(config: LeanConfig) -> LeanVerifier:
    """The Lean verifier, once the toolchain and a sandbox have been found.

    Raises:
        VerifierError: a program is missing, or lake cannot read the project.
        SandboxError: no isolation here and `allow_unsafe` is off.
    """
    installation = LeanInstallation.find(config.lean, config.project)
    programs = (
        *([config.repl] if config.repl else []),
        *([config.replay] if config.trust == "replay" else []),
    )
    shown = [folder for program in programs for folder in _prefix(program)]
    verifier = LeanVerifier(
        sandbox=open_sandbox(readable=(*installation.readable, *shown), allow_unsafe=config.allow_unsafe),
        installation=installation,
        trust=config.trust,
        replay=config.replay,
        repl=config.repl,
        axioms=LEAN_AXIOMS if config.axioms is None else config.axioms,
        cpu_s=config.cpu_s,
        wall_s=_wall_s(config.timeout_s),
        memory_bytes=config.memory_bytes,
    )
    verifier.prepare()
    return verifier


def build_prolog(config: PrologConfig) -> PrologVerifier:
    """The Prolog verifier, once the program and a sandbox have been found.

    Raises:
        VerifierError: SWI-Prolog is missing.
        SandboxError: no isolation here and `allow_unsafe` is off.
    """
    verifier = PrologVerifier(
        sandbox=open_sandbox(readable=_prefix(config.swipl), allow_unsafe=config.allow_unsafe),
        swipl=config.swipl,
        judge=config.judge,
        partial=config.partial,
        inferences=config.inferences,
        cpu_s=config.cpu_s,
        wall_s=_wall_s(config.timeout_s),
        seed=config.seed,
    )
    verifier.prepare()
    return verifier


def _wall_s(timeout_s: float | None) -> float:
    """A little less than the worker has, so that the verifier itself can say what it was doing."""
    return 600.0 if timeout_s is None else timeout_s - 2


def _prefix(program: str) -> tuple[str, ...]:
    """The installation of a program outside of the system's folders, which a sandbox must show."""
    found = shutil.which(program)
    if found is None:
        return ()
    return tuple({str(Path(path).parents[1]) for path in (found, Path(found).resolve())} - {"/usr", "/"})
