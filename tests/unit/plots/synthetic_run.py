"""A run folder as a real run would leave it, made of a seeded story instead of a model.

`python tests/unit/plots/synthetic_run.py FOLDER` writes one to look at.
"""

import math
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from peira.runs.evaluation import Estimate, EvalCompletion, EvalQuestion, EvalRecord
from peira.runs.ledger import DropReason, LedgerEntry
from peira.runs.writer import RunWriter
from peira.types.rollout import Completion, Rollout, StopReason, Turn
from peira.types.scored import ScoredGroup, ScoredRollout
from peira.types.task import Message, Task
from peira.types.verdict import Verdict, VerdictStatus

CONFIG = """\
name: synthetic
runs_dir: runs
seed: 7
steps: {steps}
prompts_per_step: 8
group_size: 8
model:
  name: smollm2-135m-instruct
algorithm:
  name: dapo
  clip_high: 0.28
optimizer:
  lr: 1.0e-05
sampling:
  max_tokens: 160
data:
  sources:
  - path: sums.jsonl
  - path: chains.jsonl
verifiers:
- kind: numeric
  name: numeric
"""

HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    "<b>bold</b> &amp; {{ 7 * 7 }} {% raw %}",
    "مرحبا، الجواب هو ٤٢ ‮ and this is reversed ‬ 🦜🇬🇷👩‍👩‍👧 \u2028 separator",
    "x" * 20_500,
    "",
    "a\x00b\x1b[31mred\x07 \ud800 half a pair",
)


def byte_tokenizer() -> Tokenizer:
    """One token per byte, as byte-level vocabularies begin."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<end>": 0, **{character: index for index, character in enumerate(alphabet, start=1)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    return tokenizer


def write_run(
    folder: Path,
    *,
    steps: int = 60,
    groups: int = 8,
    members: int = 8,
    planned: int | None = None,
    evals: bool = True,
    hostile_step: int = 20,
    resume_at: int = 35,
) -> None:
    """Write a run in which the policy learns to add, with one kill and resume on the way."""
    rng = random.Random(7)
    tokenizer = byte_tokenizer()
    config = CONFIG.format(steps=planned or steps)
    facts = {"device": "cpu", "torch_threads": 2}
    resume_at = resume_at if resume_at < steps - 4 else 0
    with RunWriter.create(folder, config, facts=facts) as run:
        if evals:
            write_eval(run, 0, 0.08, rng)
        for step in range(1, (resume_at + 3 if resume_at else steps) + 1):
            write_step(run, step, steps, groups, members, tokenizer, rng, hostile=step == hostile_step)
            if evals and step % 20 == 0:
                write_eval(run, step, skill(step, steps), rng)
    if resume_at:
        with RunWriter.create(folder, config, facts=facts, resume=True) as run:
            run.truncate_after(resume_at)
            for step in range(resume_at + 1, steps + 1):
                write_step(run, step, steps, groups, members, tokenizer, rng, hostile=False)
                if evals and step % 20 == 0:
                    write_eval(run, step, skill(step, steps), rng)
    checkpoint = folder / "checkpoints" / f"step-{steps}"
    checkpoint.mkdir(parents=True)
    tokenizer.save(str(checkpoint / "tokenizer.json"))


def skill(step: int, steps: int) -> float:
    """Chance of a right answer, rising along a logistic curve."""
    return 0.05 + 0.75 / (1 + math.exp(-10 * (step / steps - 0.45)))


def write_step(
    run: RunWriter,
    step: int,
    steps: int,
    groups: int,
    members: int,
    tokenizer: Tokenizer,
    rng: random.Random,
    *,
    hostile: bool,
) -> None:
    scored = [
        scored_group(step, index, members, skill(step, steps), tokenizer, rng) for index in range(groups)
    ]
    if hostile:
        scored[0] = hostile_group(step, members, tokenizer)
    fates = [fates_of(group) for group in scored]
    advantages = [advantages_of(group) for group in scored]
    run.write_rollouts(step, scored, advantages, fates)
    run.write_ledger(LedgerEntry.of(step, scored, fates))
    everyone = [member for group in scored for member in group.rollouts]
    rewards = [member.reward for member in everyone if member.reward is not None]
    lengths = [member.rollout.num_tokens for member in everyone]
    kinds = [
        next((fate for fate in row if fate is not None and fate.startswith("coll")), None) for row in fates
    ]
    progress = step / steps
    verdicts = [verdict for member in everyone for verdict in member.verdicts.values()]
    run.write_metrics(
        step,
        {
            "reward/mean": sum(rewards) / len(rewards),
            "reward/std": 0.4,
            "reward/judged_fraction": len(rewards) / len(everyone),
            "score/numeric": sum(rewards) / len(rewards),
            "reward/source/sums": skill(step, steps) + rng.gauss(0, 0.05),
            "reward/source/chains": 0.6 * skill(step, steps) + rng.gauss(0, 0.05),
            "advantage/collapsed_fraction": sum(kind is not None for kind in kinds) / groups,
            "advantage/dead_fraction": sum(kind is not None for kind in kinds) / groups,
            "advantage/all_right_fraction": kinds.count(DropReason.COLLAPSED_ALL_RIGHT) / groups,
            "advantage/all_wrong_fraction": kinds.count(DropReason.COLLAPSED_ALL_WRONG) / groups,
            "advantage/truncated_fraction": 0.0,
            "advantage/duplicate_fraction": 0.0,
            "advantage/unjudged_fraction": 0.0,
            "advantage/groups": groups,
            "rollout/tokens_mean": sum(lengths) / len(lengths),
            "rollout/tokens_max": max(lengths),
            "rollout/truncated_fraction": 0.12 * (1 - progress) + 0.01,
            "rollout/duplicate_fraction": 0.3 * progress,
            "policy/loss": rng.gauss(0, 0.01),
            "policy/entropy": 0.9 * math.exp(-3.2 * progress) + 0.02 + rng.gauss(0, 0.01),
            "policy/kl_old": abs(rng.gauss(0, 0.002)),
            "policy/clipped_low_fraction": abs(rng.gauss(0.004, 0.002)),
            "policy/clipped_high_fraction": abs(rng.gauss(0.009, 0.003)),
            "policy/grad_norm": math.nan if step == 13 else abs(rng.gauss(0.6, 0.2)),
            "policy/lr": 1e-5,
            "policy/updates": 1,
            "mismatch/kl": 10 ** rng.gauss(-9, 0.3),
            "mismatch/logprob_gap_max": 10 ** rng.gauss(-5, 0.2),
            "mismatch/logprob_gap_mean": 10 ** rng.gauss(-6.5, 0.1),
            "mismatch/effective_fraction": 0.9999,
            "sync/canary_gap_nats": 10 ** rng.gauss(-6, 0.2),
            "verifier/unjudged_fraction": 1 - len(rewards) / len(everyone),
            "verifier/unparseable_fraction": share(verdicts, VerdictStatus.UNPARSEABLE),
            "verifier/timeout_fraction": share(verdicts, VerdictStatus.TIMEOUT),
            "time/sample_s": 11 + rng.gauss(0, 0.8),
            "time/score_s": 0.4,
            "time/learn_s": 7 + rng.gauss(0, 0.6),
            "time/sync_s": 0.08,
            "time/checkpoint_s": 1.9 if step % 10 == 0 else 0.0,
            "time/step_s": 19 + rng.gauss(0, 1),
            "throughput/generated_tokens_per_s": 160 + rng.gauss(0, 9),
            "throughput/trained_tokens_per_s": 420 + rng.gauss(0, 30),
            "memory/peak_bytes": 2.9e9 + 1e7 * min(step, 6),
            "data/epoch": step / 40,
        },
    )


def share(verdicts: Sequence[Verdict], status: VerdictStatus) -> float:
    return sum(verdict.status is status for verdict in verdicts) / max(1, len(verdicts))


def scored_group(
    step: int, index: int, members: int, chance: float, tokenizer: Tokenizer, rng: random.Random
) -> ScoredGroup:
    a, b = rng.randint(10, 99), rng.randint(10, 99)
    task = Task(
        id=f"sums-{a}-{b}",
        prompt=(
            Message(role="system", content="You are careful with numbers."),
            Message(role="user", content=f"What is {a} + {b}? Think, then give the number."),
        ),
        answer=str(a + b),
        source="sums" if index % 2 else "chains",
    )
    hard = rng.random()
    own = 0.0 if hard < 0.3 * (1 - chance) else 1.0 if hard > 1 - 0.25 * chance else chance
    return ScoredGroup(
        task=task,
        rollouts=tuple(
            member(task, step, g, attempt(a, b, rng.random() < own, rng), tokenizer, rng)
            for g in range(members)
        ),
    )


def attempt(a: int, b: int, right: bool, rng: random.Random) -> tuple[str, float | None, VerdictStatus, str]:
    kind = rng.random()
    if kind < 0.02:
        return f"{a} + {b} = ?", None, VerdictStatus.TIMEOUT, "killed after 10.0 s"
    if kind < 0.06 and not right:
        return "I am not sure how to add these numbers.", 0.0, VerdictStatus.UNPARSEABLE, "no number found"
    answer = a + b if right else a + b + rng.choice([-10, -1, 1, 10, 100])
    tens, ones = (a // 10 + b // 10) * 10, a % 10 + b % 10
    text = f"The tens: {a // 10 * 10} + {b // 10 * 10} = {tens}. The ones: {a % 10} + {b % 10} = {ones}.\n"
    if rng.random() < 0.3:
        text += f"Let me check: {tens} + {ones} makes {answer}. " * rng.randint(1, 3) + "\n"
    text += f"So the answer is {answer}."
    return text, float(right), VerdictStatus.SCORED, f"read {answer}, expected {a + b}"


def member(
    task: Task,
    step: int,
    index: int,
    said: tuple[str, float | None, VerdictStatus, str],
    tokenizer: Tokenizer,
    rng: random.Random,
) -> ScoredRollout:
    text, score, status, detail = said
    ids = [*tokenizer.encode(text.encode("utf-8", "replace").decode()).ids, 0]
    completion = Completion(
        request_id=task.id,
        index=index,
        token_ids=tuple(ids),
        logprobs=tuple(-rng.expovariate(3.0) for _ in ids),
        stop_reason=StopReason.END if rng.random() < 0.95 else StopReason.LENGTH,
        policy_version=step - 1,
    )
    flags = ("answer_in_prompt",) if rng.random() < 0.01 else ()
    return ScoredRollout(
        rollout=Rollout(
            id=f"{step}/{task.id}/{index}",
            task=task,
            turns=(Turn(prompt_ids=(1, 2, 3), completion=completion, text=text),),
        ),
        verdicts={"numeric": Verdict(score=score, status=status, detail=detail, flags=flags)},
        outcome=score,
        reward=score,
        excluded="" if score is not None else status.value,
    )


def hostile_group(step: int, members: int, tokenizer: Tokenizer) -> ScoredGroup:
    rng = random.Random(0)
    task = Task(
        id="</script><script>document.title='owned'</script>",
        prompt="<img src=x onerror=\"document.title='owned'\"> What is 6 x 7?\u202e",
        answer={"<b>": "</script>"},
        source="<i>hostile</i>",
    )
    return ScoredGroup(
        task=task,
        rollouts=tuple(
            member(task, step, g, (text, float(g % 2), VerdictStatus.SCORED, text[:80]), tokenizer, rng)
            for g, text in enumerate(HOSTILE[:members])
        ),
    )


def fates_of(group: ScoredGroup) -> list[DropReason | None]:
    judged = {member.reward for member in group.rollouts if member.reward is not None}
    collapsed = {1.0: DropReason.COLLAPSED_ALL_RIGHT, 0.0: DropReason.COLLAPSED_ALL_WRONG}
    return [
        DropReason.UNJUDGED
        if member.reward is None
        else collapsed[member.reward]
        if len(judged) < 2
        else None
        for member in group.rollouts
    ]


def advantages_of(group: ScoredGroup) -> list[float | None]:
    judged = [member.reward for member in group.rollouts if member.reward is not None]
    mean = sum(judged) / max(1, len(judged))
    return [None if member.reward is None else member.reward - mean for member in group.rollouts]


def write_eval(run: RunWriter, step: int, chance: float, rng: random.Random, questions: int = 120) -> None:
    rows = []
    for number in range(questions):
        a, b = 10 + number % 90, 10 + (number * 37) % 90
        text, score, status, detail = attempt(a, b, random.Random(number).random() < chance, rng)
        rows.append(
            EvalQuestion(
                task_id=f"held-out-{number}",
                source="sums" if number % 2 else "chains",
                prompt=[{"role": "user", "content": f"What is {a} + {b}?"}],
                answer=str(a + b),
                completions=(
                    EvalCompletion(
                        text=text,
                        scores={"numeric": score},
                        status={"numeric": status.value},
                        detail={"numeric": detail},
                        right=None if score is None else score == 1.0,
                        num_tokens=len(text),
                        stop_reason="end",
                    ),
                ),
            )
        )
    right = sum(row.completions[0].right is True for row in rows)
    judged = sum(row.completions[0].right is not None for row in rows)
    run.write_eval(
        EvalRecord(
            step=step,
            policy_version=step,
            headline="accuracy",
            estimates={
                "accuracy": wilson(right, judged),
                "pass_at_4": wilson(min(judged, right + 12), judged),
            },
            by_source={"sums": wilson(right // 2, judged // 2), "chains": wilson(right // 2, judged // 2)},
            num_questions=questions,
            num_completions=questions,
            num_unjudged=questions - judged,
            duration_s=21.4,
            settings={"greedy": True, "samples": 8, "temperature": 1.0, "max_tokens": 160},
        ),
        rows,
    )


def wilson(right: int, number: int) -> Estimate:
    share, z = right / number, 1.96
    centre = (share + z * z / (2 * number)) / (1 + z * z / number)
    reach = z * math.sqrt(share * (1 - share) / number + z * z / (4 * number**2)) / (1 + z * z / number)
    return Estimate(
        value=share, low=max(0.0, centre - reach), high=min(1.0, centre + reach), num_questions=number
    )


if __name__ == "__main__":
    write_run(Path(sys.argv[1]))
