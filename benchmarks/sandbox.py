"""Verdicts per second of the code verifier with full isolation, on trivial programs.

    python benchmarks/sandbox.py [--threads 2] [--seconds 10]

Compares one warm sandbox per verdict (what a run uses) with sandboxes started when needed, the same programs
without isolation, and the floor: starting an empty Python process. Every verdict is checked.
"""

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time

from peira.sandbox import BubblewrapSandbox, Limits, UnsafeProcessSandbox, probe
from peira.sandbox.pool import close_pools
from peira.types.task import Task
from peira.types.verdict import Attempt
from peira.verifiers.code import CodeVerifier

TASK = Task(id="t", prompt="", info={"tests": [{"stdin": "20 22", "stdout": "42"}]})
PROGRAM = Attempt(text="```python\nprint(sum(map(int, input().split())))\n```")


def rate(judge, threads: int, seconds: float) -> dict[str, float]:
    """Verdicts per second over all threads, and the spread of one verdict's time."""
    times: list[float] = []
    stop = time.monotonic() + seconds

    def work() -> None:
        while time.monotonic() < stop:
            start = time.monotonic()
            judge()
            times.append(time.monotonic() - start)

    start = time.monotonic()
    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    passed = time.monotonic() - start
    cuts = statistics.quantiles(times, n=20)
    return {
        "per_second": len(times) / passed,
        "median_ms": 1000 * statistics.median(times),
        "p95_ms": 1000 * cuts[18],
    }


def judged(sandbox) -> None:
    """One verdict that must be right."""
    verdict = CodeVerifier(sandbox=sandbox).verify(TASK, PROGRAM)
    assert verdict.score == 1.0, verdict


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10)
    args = parser.parse_args()
    found = probe()
    assert found.works, found.detail
    limits = Limits(wall_s=10)
    contenders = {
        "bubblewrap, warm": lambda: judged(BubblewrapSandbox(limits=limits, warm=2 * args.threads)),
        "bubblewrap, cold": lambda: judged(BubblewrapSandbox(limits=limits, warm=0)),
        "no isolation, warm": lambda: judged(UnsafeProcessSandbox(limits=limits, warm=2 * args.threads)),
        "empty Python process": lambda: subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True),
    }
    report = {}
    for name, judge in contenders.items():
        judge()
        report[name] = rate(judge, args.threads, args.seconds)
        close_pools()
        numbers = "".join(f"  {key} {value:7.1f}" for key, value in report[name].items())
        print(f"{name:24}{numbers}", flush=True)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
