"""`peira verify`: judge answers from the shell. Starts without torch."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from peira.types.task import Task
    from peira.types.verdict import Attempt, Verdict
    from peira.verifiers.channels import VerifierSet

    _Row = tuple[Task, Attempt, bool | None]
    """Task, attempt, and whether it is truly right where a column `right` says so."""

ANSWER_COLUMNS = ("answer", "ground_truth", "solution", "label", "target", "gold")
COMPLETION_COLUMNS = ("completion", "response", "output", "generation", "text")


def verify(
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="setting=value", help="Settings of the verifier.")
    ] = None,
    verifier: Annotated[
        str | None,
        typer.Option(
            "--verifier",
            "-v",
            help="A kind (math, numeric, ...), file.py:function, package.module:function, http://host:port, "
            "or a recipe.yaml. "
            "[default: math; with --run and --audit, those of the run]",
        ),
    ] = None,
    answer: Annotated[str | None, typer.Option("--answer", "-a", help="The reference answer.")] = None,
    prompt: Annotated[str, typer.Option("--prompt", help="The question, for verifiers that read it.")] = "",
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="Judge a JSONL file: completion, answer, other columns by name."),
    ] = None,
    run: Annotated[Path | None, typer.Option("--run", help="Judge a saved run's rollouts again.")] = None,
    audit: Annotated[
        Path | None,
        typer.Option("--audit", help="Show a saved run's rejected answers to a second opinion."),
    ] = None,
    second: Annotated[
        str | None, typer.Option("--second", help="With --audit: the verifier that gives it.")
    ] = None,
    samples: Annotated[int, typer.Option("--samples", min=1, help="With --audit: rejections to show.")] = 200,
    check: Annotated[
        bool,
        typer.Option("--check", help="Examine the verifier itself; what is given must be right completions."),
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="With --run: print every rollout, not only those that changed.")
    ] = False,
    serve: Annotated[
        str | None,
        typer.Option("--serve", metavar="[HOST:]PORT", help="Answer over HTTP until interrupted."),
    ] = None,
    max_queued: Annotated[
        int, typer.Option("--max-queued", min=1, help="With --serve: attempts that may wait.")
    ] = 10_000,
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Verifier processes.")] = None,
    timeout_s: Annotated[float | None, typer.Option("--timeout", help="Seconds for one answer.")] = None,
) -> int:
    """Judge an answer from standard input, a file of answers, or a saved run; JSON lines on standard output.

    \b
    printf 'so \\\\boxed{1/2}' | peira verify --verifier math --answer 0.5

    Exits 0 when every answer is right, 1 when one is not, 6 when one could not be judged.
    """
    from peira.errors import ConfigError

    ways = [name for name, way in (("--file", file), ("--run", run), ("--audit", audit)) if way is not None]
    if len(ways) > 1:
        raise ConfigError(f"verify: {' and '.join(ways)} are both given: expected one of them")
    judging = [f"judging.workers={workers}"] if workers is not None else []
    judging += [f"judging.timeout_s={timeout_s}"] if timeout_s is not None else []
    given = [*(settings or []), *judging]
    if audit is not None:
        return _audit(audit, second, given, samples)
    if run is not None:
        return _rescore(run, verifier, given, everything)
    name = verifier or "math"
    if serve is not None:
        return _serve(name, given, serve, max_queued)
    if check:
        return _check(name, given, file, answer, prompt)
    if file is not None:
        return _judge_file(name, given, file)
    return _judge_one(name, given, answer, prompt)


def _judge_one(name: str, given: list[str], answer: str | None, prompt: str) -> int:
    from peira.types.task import Task
    from peira.types.verdict import Attempt

    if sys.stdin.isatty():
        print("peira verify: reading the completion from the keyboard; end it with Ctrl-D", file=sys.stderr)
    with _verifiers(name, given, workers=1) as verifiers:
        task = Task(id="stdin", prompt=prompt, answer=answer)
        verdicts = verifiers.judge_blocking([(task, Attempt(text=_standard_input()))])[0]
        _print(_report(verifiers, verdicts))
        outcome = _outcome(verifiers, verdicts)
        if outcome is None and answer is None:
            print("peira verify: no reference answer was given: add --answer ANSWER", file=sys.stderr)
        return _exit_code([outcome])


def _judge_file(name: str, given: list[str], file: Path) -> int:
    from peira.errors import DataError

    outcomes: list[bool | None] = []
    audited: list[tuple[Verdict, bool]] = []
    with _verifiers(name, given) as verifiers:
        for chunk in _chunks(_rows(file), 512):
            table = verifiers.judge_blocking([(task, attempt) for task, attempt, _ in chunk])
            for (task, _, right), verdicts in zip(chunk, table, strict=True):
                _print({"id": task.id, **_report(verifiers, verdicts)})
                outcomes.append(_outcome(verifiers, verdicts))
                if right is not None:
                    audited.append((next(iter(verdicts.values())), right))
    if not outcomes:
        raise DataError(f"{file}: no rows: expected at least one")
    summary: dict[str, Any] = {
        "rows": len(outcomes),
        "right": outcomes.count(True),
        "not_right": outcomes.count(False),
        "unjudged": outcomes.count(None),
    }
    if audited:
        from peira.verifiers.calibrate import calibrate

        result = calibrate([verdict for verdict, _ in audited], [right for _, right in audited])
        summary["calibration"] = result.to_json()
    _print({"summary": summary})
    return _exit_code(outcomes)


def _check(name: str, given: list[str], file: Path | None, answer: str | None, prompt: str) -> int:
    from peira.errors import ExitCode
    from peira.types.task import Task
    from peira.verifiers.check import Example, check_verifier

    if file is not None:
        examples = [Example(task=task, right=attempt.text) for task, attempt, _ in _rows(file)]
    else:
        task = Task(id="stdin", prompt=prompt, answer=answer)
        examples = [Example(task=task, right=_standard_input())]
    from peira.build.verifier import verifiers_from

    channels, judging = verifiers_from(name, given)
    passed = True
    for channel in channels:
        findings = check_verifier(
            channel.verifier,
            examples,
            timeout_s=channel.timeout_s or judging.timeout_s,
            memory_limit_bytes=judging.memory_limit_bytes,
        )
        for finding in findings:
            _print({"verifier": channel.name, **_without_nothing(asdict(finding))})
            passed &= finding.passed
    return ExitCode.DONE if passed else ExitCode.NOT_ACCEPTED


def _rescore(run: Path, name: str | None, given: list[str], everything: bool) -> int:
    from peira.build.saved_run import SavedRun
    from peira.errors import ExitCode
    from peira.types.verdict import Attempt

    saved = SavedRun(run)
    num = changed = unjudged = 0
    with _verifiers(name or str(saved.config_file), given) as verifiers:
        for step in saved.steps:
            scored = list(saved.rollouts(step))
            table = verifiers.judge_blocking([(task, Attempt.of(before.rollout)) for task, before in scored])
            for (_, before), verdicts in zip(scored, table, strict=True):
                num += 1
                unjudged += _outcome(verifiers, verdicts) is None
                old = {channel: verdict.score for channel, verdict in before.verdicts.items()}
                new = {channel: verdict.score for channel, verdict in verdicts.items()}
                differs = any(old.get(channel) != score for channel, score in new.items())
                changed += differs
                if differs or everything:
                    line = {
                        "id": before.rollout.id,
                        "step": step,
                        "before": old,
                        "reward_before": before.reward,
                    }
                    _print({**line, **_report(verifiers, verdicts)})
    _print({"summary": {"rollouts": num, "changed": changed, "unjudged": unjudged}})
    return ExitCode.VERIFIER if unjudged else ExitCode.DONE


def _audit(run: Path, second: str | None, given: list[str], samples: int) -> int:
    from peira.build.saved_run import SavedRun
    from peira.errors import ConfigError
    from peira.types.verdict import Attempt, VerdictStatus
    from peira.verifiers.calibrate import audit, sample_rejections

    if second is None:
        raise ConfigError(
            "verify: --audit: expected --second VERIFIER, which gives the second opinion; "
            "math is one for answers that were compared as text or numbers, file.py:function can be any"
        )
    saved = SavedRun(run)
    rejections: dict[tuple[str, str], Verdict] = {}
    attempts: list[tuple[Task, Attempt]] = []
    for step in saved.steps:
        for task, before in saved.rollouts(step):
            lowest = min(
                (verdict for verdict in before.verdicts.values() if verdict.score is not None),
                key=lambda verdict: verdict.score or 0.0,
                default=None,
            )
            if lowest is None or lowest.score != 0 or lowest.status is VerdictStatus.TRUNCATED:
                continue
            attempt = Attempt.of(before.rollout)
            rejections[task.id, attempt.text] = lowest
            attempts.append((task, attempt))
    chosen = sample_rejections(attempts, samples)
    with _verifiers(second, given) as verifiers:
        table = verifiers.judge_blocking(chosen)
    result = audit(
        len(attempts),
        chosen,
        [rejections[task.id, attempt.text] for task, attempt in chosen],
        [next(iter(verdicts.values())) for verdicts in table],
    )
    for mismatch in result.mismatches:
        _print(asdict(mismatch))
    _print(
        {
            "summary": {
                "rejected": result.num_rejected,
                "examined": result.num_examined,
                "overturned": asdict(result.overturned),
            }
        }
    )
    return _exit_code([not result.mismatches])


def _serve(name: str, given: list[str], address: str, max_queued: int) -> int:
    from peira.errors import ConfigError, ExitCode
    from peira.verifiers.service import service

    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"verify: --serve = {address!r}: expected PORT or HOST:PORT")
    with _verifiers(name, given) as verifiers:
        app = service(verifiers, max_queued=max_queued)
        import uvicorn

        channels = ", ".join(channel.name for channel in verifiers.channels)
        print(f"judging with {channels} on http://{host or '127.0.0.1'}:{port}", file=sys.stderr, flush=True)
        uvicorn.run(app, host=host or "127.0.0.1", port=int(port), log_level="warning")
    return ExitCode.DONE


def _verifiers(name: str, given: list[str], workers: int | None = None) -> "VerifierSet":
    from peira.build.verifier import verifiers_from
    from peira.verifiers.channels import VerifierSet

    channels, judging = verifiers_from(name, given)
    return VerifierSet(
        channels,
        workers=workers or judging.workers,
        timeout_s=judging.timeout_s,
        memory_limit_bytes=judging.memory_limit_bytes,
    )


def _standard_input() -> str:
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def _rows(file: Path) -> "Iterator[_Row]":
    from peira.errors import DataError
    from peira.types.task import Task
    from peira.types.verdict import Attempt

    try:
        stream = sys.stdin.buffer if str(file) == "-" else file.open("rb")
    except OSError as error:
        raise DataError(f"{file}: expected a JSONL file that can be read ({error.strerror})") from error
    with stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            place = f"{file}: line {number}"
            try:
                row = json.loads(line)
            except ValueError as error:
                raise DataError(f"{place}: expected one JSON object ({error})") from error
            if not isinstance(row, dict):
                raise DataError(f"{place}: expected a JSON object, found {type(row).__name__}")
            completion = _column(row, COMPLETION_COLUMNS)
            if not isinstance(row.get(completion), str):
                raise DataError(
                    f"{place}: expected a text in one of {', '.join(COMPLETION_COLUMNS)}; "
                    f"the row has {', '.join(row) or 'no columns'}"
                )
            reference = _column(row, ANSWER_COLUMNS)
            known = {completion, reference, "id", "prompt", "verifier", "right"}
            task = Task(
                id=str(row.get("id", number)),
                prompt=row["prompt"] if isinstance(row.get("prompt"), str) else "",
                answer=row.get(reference),
                verifier=row.get("verifier"),
                info={key: value for key, value in row.items() if key not in known},
            )
            right = row.get("right")
            yield task, Attempt(text=row[completion]), bool(right) if right is not None else None


def _column(row: Mapping[str, Any], names: Iterable[str]) -> str:
    return next((name for name in names if name in row), "")


def _chunks(items: "Iterable[_Row]", size: int) -> "Iterator[list[_Row]]":
    chunk = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _report(verifiers: "VerifierSet", verdicts: "Mapping[str, Verdict]") -> dict[str, Any]:
    """One verdict flat; several by channel, with the reward they make."""
    if len(verifiers.channels) == 1:
        return _verdict(next(iter(verdicts.values())))
    channels = {name: _verdict(verdict) for name, verdict in verdicts.items()}
    return {"reward": verifiers.combine(verdicts), "channels": channels}


def _verdict(verdict: "Verdict") -> dict[str, Any]:
    fields = asdict(verdict)
    return {"score": fields.pop("score"), **_without_nothing(fields)}


def _without_nothing(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value not in ("", {}, (), [])}


def _outcome(verifiers: "VerifierSet", verdicts: "Mapping[str, Verdict]") -> bool | None:
    """Right: every channel with a weight gives the full score. None: one of them could not judge."""
    scores = [
        verdict.score
        for name, verdict in verdicts.items()
        if verifiers.weights[name] != 0 or len(verifiers.channels) == 1
    ]
    if not scores or None in scores:
        return None
    return all(score == 1.0 for score in scores)


def _exit_code(outcomes: Iterable[bool | None]) -> int:
    from peira.errors import ExitCode

    seen = set(outcomes)
    if None in seen:
        return ExitCode.VERIFIER
    return ExitCode.NOT_ACCEPTED if False in seen else ExitCode.DONE


def _print(line: Mapping[str, Any]) -> None:
    print(json.dumps(line, ensure_ascii=True, allow_nan=True))
