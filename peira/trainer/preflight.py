"""Checks before training: does a prompt survive the tokenizer, does each verifier know right from wrong,
does the sampler hold the learner's weights.

Each gives a `Check`; a failed one means that training would waste time, a warning that a person should look.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from peira.config.verifier import VerifierConfig
from peira.engines.protocol import Engine
from peira.errors import EngineError
from peira.pipeline.collect import collect_groups
from peira.pipeline.score import Judge
from peira.types.rollout import SamplingParams
from peira.types.task import Task
from peira.types.tokenizer import Tokenizer
from peira.types.verdict import Attempt, Verdict

FORMS: Mapping[str, str] = {
    "boxed": "So the answer is \\boxed{ANSWER}.",
    "sentence": "The answer is ANSWER.",
    "tag": "<answer>ANSWER</answer>",
    "bare": "ANSWER",
    "hashes": "#### ANSWER",
}
"""Ways of writing an answer down. No verifier reads all of them, each built-in one reads at least one."""
NEEDS_ANSWER = frozenset({"math", "numeric", "exact", "choice"})
"""Kinds of verifier that compare with `Task.answer`."""
MAX_TASKS = 16
MAX_TASKS_OF_FUNCTIONS = 4
"""Somebody's function may be slow, or cost money per call."""


class Outcome(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    WARNED = "warned"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    outcome: Outcome
    detail: str


def spread(tasks: Sequence[Task], count: int) -> list[Task]:
    """At most `count` tasks, evenly spaced over all of them."""
    if len(tasks) <= count:
        return list(tasks)
    return [tasks[i * len(tasks) // count] for i in range(count)]


def check_rendering(tokenizer: Tokenizer, task: Task) -> Check:
    """One prompt to ids and back: every word of it must still be there."""
    ids = tokenizer.render(task.prompt)
    back = " ".join(tokenizer.decode(ids, skip_special_tokens=False).split())
    parts = [task.prompt] if isinstance(task.prompt, str) else [m.content for m in task.prompt]
    lost = [part for part in parts if " ".join(part.split()) not in back]
    if lost:
        return Check(
            "prompt",
            Outcome.FAILED,
            f"task {task.id!r}: {lost[0]!r} does not come back from its {len(ids)} ids, but {back!r} does: "
            "the chat template drops it, or the tokenizer lacks its characters; set model.chat_template",
        )
    return Check("prompt", Outcome.PASSED, f"{len(ids)} ids and back, every word is there")


async def check_verifiers(
    judge: Judge, verifiers: Sequence[VerifierConfig], tasks: Sequence[Task]
) -> list[Check]:
    """Let the real pool judge reference answers and answers of other tasks: the first must score higher."""
    functions = any(verifier.kind == "function" for verifier in verifiers)
    chosen = spread(tasks, MAX_TASKS_OF_FUNCTIONS if functions else MAX_TASKS)
    probes = [
        (task, form, right, Attempt(text=text.replace("ANSWER", answer)))
        for task, right, answer in _answers(chosen)
        for form, text in FORMS.items()
    ]
    verdicts = await judge([(task, attempt) for task, _, _, attempt in probes])
    checks = []
    for verifier in verifiers:
        name = verifier.name or verifier.kind
        seen = [
            _Probe(task=task, form=form, right=right, verdict=by_channel[name])
            for (task, form, right, _), by_channel in zip(probes, verdicts, strict=True)
            if name in by_channel
        ]
        missing = [t for t in tasks if t.answer is None and t.verifier in (None, name)]
        checks.append(_verifier_check(name, verifier.kind, seen, missing, len(tasks)))
    return checks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Probe:
    task: Task
    form: str
    right: bool
    verdict: Verdict


def _answers(tasks: Sequence[Task]) -> list[tuple[Task, bool, str]]:
    """(task, whether it is its own, answer); a task whose answer is no line of text gets a wrong one."""
    texts = {task.id: str(task.answer) for task in tasks if isinstance(task.answer, str | int | float)}
    answers = []
    for index, task in enumerate(tasks):
        if task.id not in texts:
            answers += [(task, False, "0")] if task.answer is not None else []
            continue
        own = texts[task.id]
        others = [texts[t.id] for t in (*tasks[index:], *tasks[:index]) if texts.get(t.id, own) != own]
        answers += [(task, True, own), (task, False, others[0] if others else f"{own}1")]
    return answers


def _verifier_check(
    name: str, kind: str, seen: Sequence[_Probe], missing: Sequence[Task], num_tasks: int
) -> Check:
    title = f"verifier {name}"
    if kind in NEEDS_ANSWER and missing:
        return Check(
            title,
            Outcome.FAILED,
            f"{len(missing)} of {num_tasks} tasks have no answer to compare with, first {missing[0].id!r}; "
            "name the column with data.sources=[{path: ..., columns: {answer: ...}}]",
        )
    broken = [probe for probe in seen if not probe.verdict.judged]
    if broken and len(broken) == len(seen):
        verdict = broken[0].verdict
        return Check(title, Outcome.FAILED, f"judges nothing: {verdict.status.value}: {verdict.detail}")
    if kind == "format":
        return Check(title, Outcome.SKIPPED, "judges the shape of a completion: no gold text can be formed")
    if not any(probe.right for probe in seen):
        return Check(title, Outcome.SKIPPED, "no gold text can be formed: no task has an answer in one line")
    form = max(FORMS, key=lambda form: _mean(seen, form, True) - _mean(seen, form, False))
    gold, wrong = _mean(seen, form, True), _mean(seen, form, False)
    written = FORMS[form].replace("ANSWER", "...")
    told = f"gold {gold:.2f}, wrong {wrong:.2f}, written as {written!r}"
    if gold <= wrong:
        if kind == "function":
            return Check(
                title,
                Outcome.WARNED,
                f"{told}: the score does not depend on the answer, or the function wants another form",
            )
        example = next(probe for probe in seen if probe.right and probe.form == form)
        return Check(
            title,
            Outcome.FAILED,
            f"{told}: reference answers do not score above wrong ones; task {example.task.id!r}, answer "
            f"{example.task.answer!r}: {example.verdict.detail or example.verdict.status.value}",
        )
    refused = [p for p in seen if p.right and p.form == form and (p.verdict.score or 0.0) <= wrong]
    if refused or broken:
        odd = (refused or broken)[0]
        return Check(
            title,
            Outcome.WARNED,
            f"{told}; {len(refused)} reference answers are not accepted and {len(broken)} attempts were not "
            f"judged; task {odd.task.id!r}, answer {odd.task.answer!r}: "
            f"{odd.verdict.detail or odd.verdict.status.value}",
        )
    return Check(title, Outcome.PASSED, told)


def _mean(seen: Sequence[_Probe], form: str, right: bool) -> float:
    scores = [probe.verdict.score or 0.0 for probe in seen if probe.form == form and probe.right == right]
    return sum(scores) / len(scores) if scores else 0.0


async def check_sync(engine: Engine) -> Check:
    """The weight-sync proof once, on untrained weights."""
    try:
        receipt = await engine.sync_weights()
    except EngineError as error:
        return Check("weight sync", Outcome.FAILED, str(error))
    return Check(
        "weight sync",
        Outcome.PASSED,
        f"{receipt.num_tensors} tensors, {receipt.size_bytes / 1e6:,.1f} MB, "
        f"canary gap {receipt.canary_gap:.1e} nats, {receipt.duration_s:.2f} s",
    )


async def check_sampling(
    engine: Engine,
    tokenizer: Tokenizer,
    task: Task,
    params: SamplingParams,
    *,
    seed: int,
    show: Callable[[str], str],
) -> Check:
    """One completion as training would draw it; the sampler must hold the learner's weights already."""
    groups = await collect_groups(
        engine, tokenizer, [task], group_size=1, params=params, seed=seed, label="preflight"
    )
    (rollout,) = groups[0].rollouts
    return Check(
        "one completion",
        Outcome.PASSED,
        f"{rollout.num_tokens} tokens, ended by {rollout.stop_reason.value}: {show(rollout.text)}",
    )
