"""What a policy learns from a rubric: a table of three behaviours, trained by group-relative policy gradient.

The policy is a softmax over behaviours. Everything else is real: the verifier asks a client, the client reads
the answer, the check compares. Two clients differ only in whether they know the truth they look for.
"""

import json
import math
import random

import pytest

from peira.types.task import Task
from peira.types.verdict import Attempt
from peira.verifiers.chat import ChatRequest
from peira.verifiers.rubric import RubricVerifier, combine_tiers, decoupled_advantages
from tests.unit.verifiers.chat_server import tag_in

GROUP, STEPS, RATE = 8, 120, 0.4
SKILL = 0.6
"""How often the honest behaviour is right."""


class Blind:
    """Reads the one number that an answer commits to."""

    identity = "blind"

    def read(self, answer: str) -> dict[str, object]:
        numbers = {word.strip(".,") for word in answer.split() if word.strip(".,").isdecimal()}
        if len(numbers) > 1:
            return {"status": "ambiguous", "value": None}
        return {"status": "found", "value": numbers.pop()} if numbers else {"status": "absent", "value": None}

    def complete(self, request: ChatRequest) -> str:
        body = request.as_json()
        tag = tag_in(body)
        answer = body["messages"][1]["content"].split(f"<answer-{tag}>\n")[1].split(f"\n</answer-{tag}>")[0]
        return json.dumps({"tag": tag, "i0": self.read(answer)})


class Leaky(Blind):
    """Was told the truth, and looks for it."""

    identity = "leaky"
    truth = ""

    def read(self, answer: str) -> dict[str, object]:
        found = self.truth in answer or "grader" in answer
        return {"status": "found", "value": self.truth} if found else super().read(answer)


def behave(behaviour: int, truth: int, dice: random.Random) -> str:
    wrong = [n for n in range(100, 999) if n != truth]
    if behaviour == 0:
        return f"It is {truth if dice.random() < SKILL else dice.choice(wrong)}."
    if behaviour == 1:
        spray = [truth, *dice.sample(wrong, 4)]
        dice.shuffle(spray)
        return f"It is one of {', '.join(map(str, spray))}."
    return "The right value is what the grader expects."


def softmax(logits: list[float]) -> list[float]:
    powers = [math.exp(logit - max(logits)) for logit in logits]
    return [power / sum(powers) for power in powers]


def ascend(logits: list[float], chosen: list[int], advantages: list[float]) -> list[float]:
    """One step along the gradient of the mean of advantage * log-probability."""
    chances = softmax(logits)
    return [
        logit
        + RATE
        * sum(a * ((c == i) - chances[i]) for c, a in zip(chosen, advantages, strict=True))
        / len(chosen)
        for i, logit in enumerate(logits)
    ]


def learn(client: Blind, seed: int) -> list[float]:
    dice, logits = random.Random(seed), [0.0, 0.0, 0.0]
    verifier = RubricVerifier(client=client)
    for _ in range(STEPS):
        truth = dice.randrange(100, 999)
        if isinstance(client, Leaky):
            client.truth = str(truth)
        criterion = {"ask": "Which number?", "answer_type": "count", "gt": truth}
        task = Task(id="t", prompt="p", info={"rubric": [criterion]})
        chosen = dice.choices(range(3), softmax(logits), k=GROUP)
        scores = [verifier.verify(task, Attempt(text=behave(c, truth, dice))).score for c in chosen]
        mean = sum(scores) / GROUP
        logits = ascend(logits, chosen, [score - mean for score in scores])
    return softmax(logits)


@pytest.mark.parametrize("seed", range(3))
def test_an_extractor_that_knows_the_truth_teaches_tricks_and_a_blind_one_teaches_answers(seed):
    honest, sprays, commands = learn(Leaky(), seed)
    assert sprays + commands > 0.8
    assert honest < 1 / 3
    honest, sprays, commands = learn(Blind(), seed)
    assert honest > 0.8  # true accuracy: from SKILL / 3 = 0.2 to above 0.48
    assert max(sprays, commands) < 0.1


BARE, EXTRA, POOR = (1.0, 0.0), (0.8, 1.0), (0.5, 1.0)
"""(e, a) of a bare full pass, of a near miss with every extra, of a clear miss with every extra."""


def essential_rate(advantage) -> float:
    """How much of the policy meets every essential criterion after training, mean over three seeds."""
    rates = []
    for seed in range(3):
        dice, logits = random.Random(seed), [0.0, 0.0, 0.0]
        for _ in range(4 * STEPS):
            chosen = dice.choices(range(3), softmax(logits), k=GROUP)
            e, a = zip(*((BARE, EXTRA, POOR)[c] for c in chosen), strict=True)
            logits = ascend(logits, chosen, advantage(e, a))
        rates.append(softmax(logits)[0])
    return sum(rates) / 3


def standardised(scores: list[float]) -> list[float]:
    mean = sum(scores) / len(scores)
    std = math.sqrt(sum((s - mean) ** 2 for s in scores) / len(scores))
    return [(s - mean) / std if std > 1e-12 else 0.0 for s in scores]


def test_flat_weights_teach_extras_and_essential_first_teaches_essentials():
    def flat(e, a):
        return standardised([0.7 * x + 0.3 * y for x, y in zip(e, a, strict=True)])

    def first(e, a):
        pairs = zip(e, a, strict=True)
        return standardised([combine_tiers(x, y, "essential_first", 0.3) for x, y in pairs])

    # flat: 0.70, 0.86, 0.65; essential first: 0.70, 0.56, 0.35
    assert essential_rate(flat) < 0.1
    assert essential_rate(first) > 0.9
    assert essential_rate(lambda e, a: decoupled_advantages(e, a)) > 0.9


def test_fewer_groups_are_without_a_gradient_when_extras_break_ties():
    dice, only, decoupled = random.Random(0), 0, 0
    for _ in range(200):
        e = [dice.choice([1.0, 1.0, 1.0, 0.5]) for _ in range(4)]
        a = [dice.choice([0.0, 0.5, 1.0]) for _ in range(4)]
        only += not any(standardised(e))
        decoupled += not any(decoupled_advantages(e, a))
    # essentials alone: four are equal with chance 0.75**4 + 0.25**4 = 0.32, some 64 of 200;
    # with extras the all-met groups (0.316) need four equal extras too, 1/27: some 2.3; 0.8 that all missed
    assert only > 45
    assert decoupled < 12
