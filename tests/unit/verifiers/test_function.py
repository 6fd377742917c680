"""Anyone's function, in our form and in those of other trainers, run unchanged."""

import pytest

from peira.errors import ConfigError, VerifierError
from peira.types.rollout import StopReason
from peira.types.task import Message, Task
from peira.types.verdict import Attempt, VerdictStatus
from peira.verifiers.function import FunctionVerifier
from peira.verifiers.pool import Job, WorkerPool

CHAT = Task(
    id="chat",
    prompt=(Message(role="system", content="Be brief."), Message(role="user", content="2 + 2 = ?")),
    answer="4",
    info={"difficulty": 3, "extra_info": {"split": "train"}},
    source="sums",
)
PLAIN = Task(id="plain", prompt="2 + 2 =", answer="4", info={"difficulty": 3})

FUNCTIONS = """
import asyncio
from peira.types.verdict import Verdict

def native(completion, answer): return completion == answer
def wants(prompt, completion, answer, info, completion_ids, finish_reason, state, difficulty, bonus=0.0):
    assert prompt.endswith("2 + 2 = ?") and info["difficulty"] == difficulty == 3
    assert completion_ids == [1, 2] and finish_reason == "length" and state == {"turns": 1}
    return bonus
def everything(**kwargs): return float(kwargs["answer"] == "4" and kwargs["difficulty"] == 3)
async def slow(completion, answer):
    await asyncio.sleep(0.01)
    return 1.0 if completion == answer else 0.0
def abstains(completion): return None
def verdict(completion): return Verdict(score=0.25, step_scores=(0.5, 0.0), detail="mine")
def as_dict(completion):
    return {"score": 0.5, "length": 3, "note": "x", "step_scores": [0.1, 0.2], "reason": "r"}
class Result:
    def __init__(self): self.score, self.parts, self.detail = 0.75, {"a": 1.0}, "d"
def as_object(completion): return Result()
def batch(completions, answers): return [float(c == a) for c, a in zip(completions, answers)]
def alias(completion, ground_truth, solution, label): return ground_truth == solution == label == completion
def texts(completion): return "right"
def number(completion): return float(completion)
def lists(completion): return [1.0]
def raises(completion): raise KeyError("mine")
def columns(completion, colour): return 1.0
def positional(a, /): return 1.0

def trl_chat(prompts, completions, answer, **kwargs):
    assert prompts[0][-1]["content"] == "2 + 2 = ?" and kwargs["difficulty"] == [3]
    return [1.0 if c[0]["content"] == a else 0.0 for c, a in zip(completions, answer)]
def trl_text(completions, ground_truth, **kwargs):
    return [float(c.strip() == t) for c, t in zip(completions, ground_truth)]
def trl_skips(completions, **kwargs): return [None for _ in completions]
async def trl_async(completions, **kwargs): return [0.5 for _ in completions]
def trl_two(completions, **kwargs): return [0.0, 1.0]
def trl_logs(completions, log_metric, log_extra, trainer_state, **kwargs):
    log_metric("x", 1.0); log_extra("y", ["z"])
    return [1.0]

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    assert data_source == "sums" and extra_info == {"split": "train"}
    return {"score": float(solution_str == ground_truth), "acc": True, "pred": solution_str}

class Tensor(list):
    def tolist(self): return list(self)
def reward_func(queries, prompts, labels, **kwargs):
    assert queries[0].startswith(prompts[0]) and queries[0].endswith("4") and labels == ["4"]
    return {"rewards": Tensor([1.0]), "scores": Tensor([0.5]), "extra_logs": {"length": Tensor([7.0])}}
def reward_list(queries, prompts, labels): return Tensor([0.5])

def rubric(prompt, completion, answer, state, parser):
    assert completion[-1]["role"] == "assistant"
    return 1.0 if parser.parse_answer(completion) == answer else 0.0
def rubric_annotated(completion: list[dict], answer: str) -> float:
    return float(completion[-1]["content"] == answer)
def guesses(completion, answer): return float(completion[0]["content"] == answer)
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("functions") / "rewards.py"
    path.write_text(FUNCTIONS)
    return path


def judged(file, name, text="4", task=CHAT, **settings):
    attempt = Attempt(text=text, token_ids=(1, 2), stop_reason=StopReason.LENGTH, state={"turns": 1})
    return FunctionVerifier(ref=f"{file}:{name}", **settings).verify(task, attempt)


@pytest.mark.parametrize(
    ("name", "score"),
    [
        ("native", 1.0),
        ("everything", 1.0),
        ("slow", 1.0),
        ("verdict", 0.25),
        ("as_dict", 0.5),
        ("as_object", 0.75),
        ("batch", 1.0),
        ("alias", 1.0),
        ("trl_chat", 1.0),
        ("trl_text", 1.0),
        ("trl_async", 0.5),
        ("trl_logs", 1.0),
        ("compute_score", 1.0),
        ("reward_func", 1.0),
        ("reward_list", 0.5),
        ("rubric_annotated", 1.0),
        ("guesses", 1.0),
    ],
)
def test_a_function_is_called_as_its_signature_asks(file, name, score):
    assert judged(file, name).score == score


def test_a_function_gets_what_it_names_and_its_options(file):
    assert judged(file, "wants", options={"bonus": 0.5}).score == 0.5


def test_a_verifiers_reward_gets_messages_and_a_parser(file):
    assert judged(file, "rubric", text="<answer>4</answer>").score == 1.0
    assert judged(file, "rubric", text="<answer>5</answer>").score == 0.0


def test_plain_prompts_give_plain_completions_to_a_trl_function(file):
    assert judged(file, "trl_text", task=PLAIN).score == 1.0


def test_none_abstains(file):
    for name in ("abstains", "trl_skips"):
        assert judged(file, name).status is VerdictStatus.ABSTAIN


def test_what_a_function_tells_besides_its_score_is_kept(file):
    assert judged(file, "verdict").step_scores == (0.5, 0.0)
    as_dict = judged(file, "as_dict")
    assert (as_dict.parts, as_dict.step_scores, as_dict.detail) == ({"length": 3.0}, (0.1, 0.2), "r")
    assert judged(file, "as_object").parts == {"a": 1.0}
    assert judged(file, "compute_score").parts == {"acc": 1.0}
    assert judged(file, "reward_func").parts == {"length": 7.0}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("texts", "returned 'right': expected a finite number"),
        ("lists", r"returned \[1.0\]: expected a finite number"),
        ("trl_two", "expected a list of one score"),
    ],
)
def test_what_is_no_score_is_an_error_and_never_a_reward(file, name, message):
    with pytest.raises(VerifierError, match=message):
        judged(file, name)


def test_what_a_function_raises_passes_through(file):
    with pytest.raises(KeyError, match="mine"):
        judged(file, "raises")


def test_a_range_maps_onto_scores_and_is_kept(file):
    # (-1 + 1) / 3 and (0.5 + 1) / 3
    assert judged(file, "number", text="-1", range=(-1.0, 2.0)).score == 0.0
    assert judged(file, "number", text="0.5", range=(-1.0, 2.0)).score == pytest.approx(0.5)
    with pytest.raises(VerifierError, match=r"returned 2.5: expected a number from -1 to 2; set `range"):
        judged(file, "number", text="2.5", range=(-1.0, 2.0))
    with pytest.raises(ConfigError, match="low < high"):
        FunctionVerifier(ref="a:b", range=(1.0, 1.0))


def test_a_name_that_nobody_has_is_refused_with_what_there_is(file):
    with pytest.raises(ConfigError, match=r"asks for 'colour': there is only .*difficulty"):
        judged(file, "columns")


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("native", "native"),
        ("batch", "native_batch"),
        ("trl_chat", "trl"),
        ("trl_text", "trl"),
        ("compute_score", "verl"),
        ("reward_func", "openrlhf"),
        ("rubric", "verifiers"),
        ("rubric_annotated", "verifiers"),
    ],
)
def test_the_form_is_recognised_and_told(file, name, form):
    assert f"{form} form" in FunctionVerifier(ref=f"{file}:{name}").describe()


def test_a_trial_shows_what_was_called_and_what_came_back(file):
    told = FunctionVerifier(ref=f"{file}:trl_chat").trial(CHAT, Attempt(text="4"))
    assert "trl form" in told
    assert "score 1" in told


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ("rewards", "expected 'path/to/file.py:function'"),
        ("nowhere/rewards.py:f", "there is no file"),
        ("no_such_package.module:f", "there is no module 'no_such_package'"),
        ("math:sqrtt", "did you mean 'sqrt'"),
        ("math:pi", "not a function"),
    ],
)
def test_a_reference_that_leads_nowhere_says_so(ref, message):
    with pytest.raises(ConfigError, match=message):
        FunctionVerifier(ref=ref).prepare()


def test_a_file_that_fails_to_import_and_odd_options_are_refused(file, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("import no_such_library")
    with pytest.raises(ConfigError, match=r"importing .*broken.py raised ModuleNotFoundError"):
        FunctionVerifier(ref=f"{broken}:f").prepare()
    broken.write_text("import sys\nsys.exit(3)")
    with pytest.raises(ConfigError, match=r"importing .*broken.py raised SystemExit\(3\)"):
        FunctionVerifier(ref=f"{broken}:f").prepare()
    with pytest.raises(ConfigError, match=r"options.bonus: the function has no such argument"):
        FunctionVerifier(ref=f"{file}:native", options={"bonus": 1}).prepare()
    with pytest.raises(ConfigError, match="passed by name"):
        FunctionVerifier(ref=f"{file}:positional").prepare()


def test_a_file_may_import_its_neighbours(tmp_path):
    (tmp_path / "neighbour_of_rewards.py").write_text("VALUE = 0.5")
    (tmp_path / "uses_neighbour.py").write_text(
        "from neighbour_of_rewards import VALUE\ndef f(completion): return VALUE\n"
    )
    verifier = FunctionVerifier(ref=f"{tmp_path / 'uses_neighbour.py'}:f")
    assert verifier.verify(PLAIN, Attempt(text="x")).score == 0.5


def test_functions_run_in_the_workers(file):
    verifiers = {name: FunctionVerifier(ref=f"{file}:{name}") for name in ("slow", "raises", "columns")}
    with WorkerPool(verifiers, workers=1) as pool:
        verdicts = pool.judge_blocking(
            [Job(verifier=name, task=CHAT, attempt=Attempt(text="4")) for name in verifiers]
        )
    assert verdicts[0].score == 1.0
    assert [verdict.status for verdict in verdicts[1:]] == [VerdictStatus.ERROR] * 2
    assert "rewards.py" in verdicts[1].detail
