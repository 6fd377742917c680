"""Settings of the verifiers of proofs and rules."""

from typing import Literal

from pydantic import Field

from peira.config.channel import ChannelConfig


class _Sandboxed(ChannelConfig):
    """Work inside a sandbox."""

    allow_unsafe: bool = True
    """Where there is no bubblewrap, run under resource limits alone. What could do harm is refused before it
    runs, so this is less than it would be for programs; false insists on isolation."""


class CoqConfig(_Sandboxed):
    """Rocq (Coq) proofs of the theorem in the column `theorem`, checked by its kernel."""

    kind: Literal["coq"] = "coq"
    timeout_s: float | None = Field(default=120.0, gt=2)
    """Wall-clock seconds for one attempt, in place of `judging.timeout_s`; what they end is unjudged."""
    cpu_s: float = Field(default=20.0, gt=0)
    """Processor seconds for compiling a proof, and again for each check; a proof that needs more scores 0."""
    coqc: str = "coqc"
    """The compiler: a name on the PATH, or a path."""
    coqchk: str = "coqchk"
    """The separate checker."""
    axioms: tuple[str, ...] | None = None
    """Full names of axioms that proofs may rest on; None for the usual ones of the standard library
    (docs/verifiers/coq.md), an empty list for none."""
    recheck: bool = True
    """Have every proof that got so far rechecked by the separate checker: half of a right proof's cost."""
    memory_bytes: int = Field(default=3 * 1024**3, ge=256 * 1024**2)
    """Address space of a process."""


class LeanConfig(_Sandboxed):
    """Lean 4 proofs of the theorem in the column `theorem`, checked by its kernel."""

    kind: Literal["lean"] = "lean"
    timeout_s: float | None = Field(default=300.0, gt=2)
    """Wall-clock seconds for one attempt, in place of `judging.timeout_s`; what they end is unjudged."""
    cpu_s: float = Field(default=60.0, gt=0)
    """Processor seconds of all threads for compiling a proof, and again for each check; a proof that needs
    more scores 0."""
    lean: str = "lean"
    """The compiler or elan's stand-in for it: a name on the PATH, or a path."""
    project: str | None = None
    """Folder of a built lake project whose libraries (Mathlib, say) theorems import."""
    trust: Literal["environment", "replay"] = "environment"
    """environment: kind, type and axioms are read from the environment; replay: and every declaration goes
    through the kernel again."""
    replay: str = "lean4checker"
    """The program that replays: lean4checker, or leanchecker of newer toolchains."""
    repl: str | None = None
    """Executable of the REPL, to sort out failing proofs without loading the libraries each time."""
    axioms: tuple[str, ...] | None = None
    """Axioms that proofs may rest on; None for propext, Classical.choice and Quot.sound."""
    memory_bytes: int = Field(default=8 * 1024**3, ge=256 * 1024**2)
    """Address space of a process. With large libraries set `judging.memory_limit_bytes: null` as well."""


class PrologConfig(_Sandboxed):
    """Rules in Prolog for the examples in the column `induction`, checked under fresh names."""

    kind: Literal["prolog"] = "prolog"
    timeout_s: float | None = Field(default=60.0, gt=2)
    """Wall-clock seconds for one attempt, in place of `judging.timeout_s`; what they end is unjudged."""
    cpu_s: float = Field(default=5.0, gt=0)
    """Processor seconds for one attempt; a rule that needs more scores 0."""
    swipl: str = "swipl"
    """SWI-Prolog: a name on the PATH, or a path."""
    judge: Literal["isomorphic", "extensional"] = "isomorphic"
    """isomorphic: by fresh random names; extensional: by the given ones, which lists of names pass too."""
    partial: bool = False
    """Score the share of examples on the right side; a rule that never fires gets the share of negatives."""
    inferences: int = Field(default=500_000, ge=1000)
    """Steps of one proof; one that needs more ends the run with score 0."""
    seed: int = 0
    """Of the fresh names, which depend on task and rule as well."""
