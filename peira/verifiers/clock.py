"""Whose time ran out: the program's own, or that of a busy machine.

A program that computes too long has itself to blame and scores 0. One that merely waited for a processor has
not: what the clock on the wall ends is unjudged.
"""

import math
import signal
from collections.abc import Sequence

from peira.sandbox.protocol import Execution, Outcome


def limited(argv: Sequence[str], cpu_s: float) -> list[str]:
    """The command under a limit on the processor's time, in whole seconds, all its threads together."""
    # Where the limit in force is tighter already, it stays.
    return ["/bin/sh", "-c", 'ulimit -S -t "$0" 2>/dev/null; exec "$@"', str(math.ceil(cpu_s)), *argv]


def computed_too_long(run: Execution) -> bool:
    """Whether that limit ended it."""
    return run.exit_code == -signal.SIGXCPU


def waited_too_long(run: Execution) -> bool:
    """Whether the clock on the wall ended it."""
    return run.outcome is Outcome.TIMEOUT and not computed_too_long(run)
