"""Running programs that nobody trusts.

`BubblewrapSandbox` is the one to use; `UnsafeProcessSandbox` is for machines without bubblewrap and has to be
allowed by name; `probe` measures what this machine can do. What runs inside is `guest.py`, standard library
only.
"""

from peira.sandbox.bubblewrap import BubblewrapSandbox
from peira.sandbox.probe import Probe, open_sandbox, probe
from peira.sandbox.protocol import Execution, Limits, Outcome, Sandbox
from peira.sandbox.session import Reply, Session
from peira.sandbox.unsafe import UnsafeProcessSandbox

__all__ = [
    "BubblewrapSandbox",
    "Execution",
    "Limits",
    "Outcome",
    "Probe",
    "Reply",
    "Sandbox",
    "Session",
    "UnsafeProcessSandbox",
    "open_sandbox",
    "probe",
]
