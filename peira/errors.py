"""Everything peira raises on purpose.

PeiraError
|- ConfigError(ValueError)        a setting; raised before anything heavy starts
|- DataError(ValueError)          a task or dataset; names file and line or id
|- ModelError(ValueError)         a model folder, hub id or catalogue name that cannot be used
|- VerifierError(RuntimeError)    a verifier broke; the rollout is unjudged
|- SandboxError(RuntimeError)     the sandbox broke (a program that fails inside it is a verdict)
|- EngineError(RuntimeError)      names verb, step and policy version
|  `- SyncError                   the sampler does not hold the learner's weights
|- CheckpointError(RuntimeError)  missing, partial, or from another config
|- RunError(RuntimeError)         a run folder: locked by another writer, unreadable, full disk
`- StopRun(RuntimeError)          a stop rule fired; carries the exit code

Messages have one form: `place: key = value: expected X; way out`. Each class carries the exit code that the
command line ends with when nobody catches it.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """What `peira` tells the shell. The numbers are public and do not change."""

    DONE = 0
    """Every planned step was taken."""
    NOT_ACCEPTED = 1
    """`peira verify`: the answer was judged and is not right."""
    FAILED = 1
    """Any other command: something broke while it ran."""
    USAGE = 2
    """Command line, configuration or data."""
    PREFLIGHT = 3
    """A check before training failed."""
    COLLAPSE = 4
    """Too many steps without a signal."""
    SYNC = 5
    """The sampler did not prove that it holds the learner's weights."""
    VERIFIER = 6
    """Too large a share of rollouts could not be judged."""
    WATCHDOG = 7
    """A stage made no progress within its time limit."""
    INTERRUPTED = 130
    """Ctrl-C or SIGTERM, after saving."""


class PeiraError(Exception):
    """Root of the tree: catch this to catch everything peira raises on purpose."""

    exit_code = ExitCode.USAGE


class ConfigError(PeiraError, ValueError):
    """A setting; raised before anything heavy starts."""


class DataError(PeiraError, ValueError):
    """A task or a dataset; names file and line, or task id."""


class ModelError(PeiraError, ValueError):
    """A model folder, hub id or catalogue name that cannot be used."""


class VerifierError(PeiraError, RuntimeError):
    """A verifier broke. The rollout it looked at is unjudged; it is not wrong."""

    exit_code = ExitCode.VERIFIER


class SandboxError(PeiraError, RuntimeError):
    """The sandbox itself broke. A program that fails inside a working sandbox is a verdict, not this."""

    exit_code = ExitCode.VERIFIER


class EngineError(PeiraError, RuntimeError):
    """A machine broke; the message names verb, step and policy version."""

    exit_code = ExitCode.FAILED


class SyncError(EngineError):
    """The sampler does not hold the learner's weights; the step did not happen."""

    exit_code = ExitCode.SYNC


class CheckpointError(PeiraError, RuntimeError):
    """A checkpoint is missing, partial, or belongs to another configuration."""


class RunError(PeiraError, RuntimeError):
    """A run folder cannot be used: another writer holds it, the disk is full, a file is unreadable."""


class StopRun(PeiraError, RuntimeError):
    """A stop rule fired: the message says which, what it saw, and what to try."""

    def __init__(self, message: str, exit_code: ExitCode) -> None:
        super().__init__(message)
        self.exit_code = exit_code
