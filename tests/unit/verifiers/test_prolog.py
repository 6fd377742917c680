"""Every way of the list to pass examples without a rule, tried on the real Prolog."""

import random
import shutil
import subprocess
from dataclasses import dataclass, replace
from importlib.resources import files

import pytest

from peira.errors import SandboxError, VerifierError
from peira.sandbox import open_sandbox
from peira.types.rollout import StopReason
from peira.types.task import Task
from peira.types.verdict import Attempt, VerdictStatus
from peira.verifiers.rules.induction import Induction
from peira.verifiers.rules.prolog import PrologVerifier, rules_in

needs_prolog = pytest.mark.skipif(
    shutil.which("swipl") is None, reason="needs SWI-Prolog: apt-get install swi-prolog-nox"
)

# p1 and p3 have purple leaves and are toxic, p2 and p4 have green ones and are safe
PLANTS = {
    "background": [
        *(f"leaf(p{i}, l{i})" for i in range(1, 5)),
        *(f"colour(l{i}, {'purple' if i % 2 else 'green'})" for i in range(1, 5)),
    ],
    "positive": ["toxic(p1)", "toxic(p3)"],
    "negative": ["toxic(p2)", "toxic(p4)"],
    "objects": [f"{kind}{i}" for kind in "pl" for i in range(1, 5)],
    "attributes": ["purple", "green"],
    "opposite": "safe",
}
TASK = Task(id="plants", prompt="Which plants are toxic?", info={"induction": PLANTS})
RULE = "toxic(X) :- leaf(X, L), colour(L, purple)."
FACTS = "toxic(p1). toxic(p3)."
NEGATION = "toxic(X) :- leaf(X, _), \\+ safe(X)."
LAST_CHARACTER = "toxic(X) :- atom_chars(X, C), last(C, D), member(D, ['1', '3'])."


@pytest.fixture(scope="module")
def prolog():
    return PrologVerifier(sandbox=open_sandbox(allow_unsafe=True), partial=True)


def judge(verifier, rules, task=TASK, **attempt):
    return verifier.verify(task, Attempt(text=f"[RULE]{rules}[/RULE]", **attempt))


@needs_prolog
@pytest.mark.parametrize(
    ("rules", "extensional", "isomorphic", "shortcut"),
    [
        # (solved, partial) by the given names, then by fresh ones; half of the examples are negative
        (RULE, (1, 1.0), (1, 1.0), False),
        (FACTS, (1, 1.0), (0, 0.5), True),
        ("toxic(X) :- leaf(X, l1) ; leaf(X, l3).", (1, 1.0), (0, 0.5), True),
        (NEGATION, (1, 1.0), (0, 0.5), True),
        ("toxic(X) :- leaf(X, _), not safe(X).", (1, 1.0), (0, 0.5), True),
        ("toxic(X) :- leaf(X, _).", (0, 0.5), (0, 0.5), False),
        ("toxic(X) :- leaf(X, L), colour(L, blue).", (0, 0.5), (0, 0.5), False),
        (LAST_CHARACTER, (1, 1.0), (0, 0.5), True),
        (
            "toxic(X) :- leaf(X, L), sub_atom(L, _, 1, 0, S), memberchk(S, ['1', '3']).",
            (1, 1.0),
            (0, 0.5),
            True,
        ),
        # no constant named like a thing, though the variables look like it
        ("toxic(P1) :- leaf(P1, L1), colour(L1, purple).", (1, 1.0), (1, 1.0), False),
        (
            "toxic(X) :- purple_leaf(X). purple_leaf(X) :- leaf(X, L), colour(L, purple).",
            (1, 1.0),
            (1, 1.0),
            False,
        ),
        ("toxic(X) :- forall(leaf(X, L), colour(L, purple)).", (1, 1.0), (1, 1.0), False),
        ("toxic(X) :- unheard_of(X).", (0, 0.5), (0, 0.5), False),
        ("toxic(X) :- X > 3.", (0, 0.5), (0, 0.5), False),
        # a helper of one's own under the name of a library predicate
        ("member(a, b). toxic(X) :- leaf(X, L), colour(L, purple).", (1, 1.0), (1, 1.0), False),
    ],
)
def test_rules_are_told_from_lists_of_names(prolog, rules, extensional, isomorphic, shortcut):
    verdict = judge(prolog, rules)
    parts = verdict.parts
    assert (parts["solved_extensional"], parts["partial_extensional"]) == extensional
    assert (parts["solved_isomorphic"], parts["partial_isomorphic"]) == isomorphic
    assert verdict.score == isomorphic[1]
    assert parts["floor"] == 0.5
    assert ("shortcut" in verdict.flags) == shortcut
    assert judge(replace(prolog, partial=False), rules).score == isomorphic[0]
    assert judge(replace(prolog, judge="extensional"), rules).score == extensional[1]


@needs_prolog
def test_what_depends_on_the_order_of_facts_does_not_survive_shuffling(prolog):
    # eight plants in the order 1, 2, ...: odd positions are positive
    facts = [*(f"leaf(p{i}, l{i})" for i in range(8)), *(f"colour(l{i}, c{i % 2})" for i in range(8))]
    info = {
        "background": facts,
        "positive": [f"toxic(p{i})" for i in range(0, 8, 2)],
        "negative": [f"toxic(p{i})" for i in range(1, 8, 2)],
        "objects": [f"{kind}{i}" for kind in "pl" for i in range(8)],
    }
    task = Task(id="ordered", prompt="", info={"induction": info})
    by_order = "toxic(X) :- findall(Y, leaf(Y, _), L), nth0(N, L, X), 0 =:= N mod 2."
    verdict = judge(prolog, by_order, task)
    assert verdict.parts["solved_extensional"] == 1.0
    assert verdict.parts["solved_isomorphic"] == 0.0
    assert verdict.flags == ("shortcut",)
    assert judge(prolog, "toxic(X) :- leaf(X, L), colour(L, c0).", task).score == 1.0


@needs_prolog
def test_a_fixed_prefix_would_miss_what_random_names_find(prolog):
    plants = Induction.of(TASK)
    prefixed = plants.renamed({thing: f"my{thing}" for thing in plants.objects})
    extensional, isomorphic = prolog.derivations(plants, prefixed, LAST_CHARACTER)
    assert extensional.solved
    assert isomorphic.solved
    random_names = plants.renamed(plants.fresh_names(random.Random(0)))
    assert not prolog.derivations(plants, random_names, LAST_CHARACTER)[1].solved


@needs_prolog
def test_six_rules_have_the_gap_that_the_examples_give(prolog):
    # solved by the given names: rule, facts, leaves, negation, so 4 of 6; by fresh ones: the rule, 1 of 6.
    # partial: given names (4 * 1 + 2 * 0.5) / 6 = 5/6; fresh ones (1 + 5 * 0.5) / 6 = 7/12
    batch = [
        RULE,
        FACTS,
        "toxic(X) :- leaf(X, l1) ; leaf(X, l3).",
        NEGATION,
        "toxic(X) :- leaf(X, _).",
        "toxic(X) :- leaf(X, L), colour(L, blue).",
    ]
    verdicts = [judge(prolog, rules) for rules in batch]
    assert sum("shortcut" in verdict.flags for verdict in verdicts) == 3
    means = {name: sum(v.parts[name] for v in verdicts) / 6 for name in verdicts[0].parts}
    assert means["solved_extensional"] - means["solved_isomorphic"] == pytest.approx(0.5)
    assert means["partial_extensional"] == pytest.approx(5 / 6)
    assert means["partial_isomorphic"] == pytest.approx(7 / 12)


@needs_prolog
@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("toxic(X) :- assertz(toxic(X)).", "refused: assertz/1"),
        (":- assertz(toxic(_)).", "refused"),
        (f"{RULE} :- shell('touch stolen').", "refused"),
        ("toxic(X) :- shell('touch stolen'), leaf(X, _).", "refused: shell/1"),
        ("toxic(X) :- consult('/etc/passwd').", "refused: consult/1"),
        ("toxic(X) :- open('stolen', write, S), close(S).", "refused: open/3"),
        ("toxic(X) :- halt.", "refused: halt/0"),
        ("toxic(X) :- system:shell(ls).", "refused"),
        ("toxic(X) :- judge:example(_, pos, toxic(X)).", "refused"),
        ("system:toxic(X) :- leaf(X, _).", "refused"),
        ("toxic(X) :- G =.. [shell, ls], call(G).", "refused: call/1"),
        ("toxic(X) :- G =.. [shell, ls], G.", "refused"),
        ("toxic(X) :- G =.. [shell, ls], \\+ G.", "refused"),
        ("toxic(X) :- findall(Y, (Y = 1, shell(ls)), _).", "refused: shell/1"),
        ("toxic(X) :- setof(Y, Z^shell(Z), _).", "refused: shell/1"),
        ("toxic(X) :- nb_setval(k, X).", "refused: nb_setval/2"),
        ("toxic(X) :- write(X).", "refused: write/1"),
        ("toxic(X) :- catch(leaf(X, _), _, true).", "refused: catch/3"),
        ("toxic(X) :- read_term(X, []).", "refused: read_term/2"),
        ("toxic --> [].", "refused"),
        (f"{RULE} colour(_, purple).", "refused: colour/2"),
        (f"{RULE} safe(p1).", "refused: safe/1"),
        ("member(X, _) :- leaf(X, _). length(a, b). toxic(X) :- leaf(X, _).", "refused: length/2"),
        ("X.", "refused"),
        ("3.", "refused"),
        ("toxic(X) :- leaf(X, L), colour(L, purple)", "syntax: end_of_file"),
        ("toxic(X) :- leaf(X L).", "syntax: operator_expected"),
        ("The rule is that purple leaves are toxic.", "syntax"),
        ("poisonous(X) :- leaf(X, _).", "empty"),
        ("toxic(X, Y) :- leaf(X, Y).", "empty"),
        ("% toxic(X) :- leaf(X, _).", "empty"),
    ],
)
def test_only_pure_clauses_that_define_the_target_run(prolog, rules, reason):
    verdict = judge(prolog, rules)
    assert verdict.score == 0.0
    assert verdict.detail.startswith(reason), verdict.detail
    assert not verdict.parts


@needs_prolog
@pytest.mark.parametrize(
    "rules", ["\ud800", "% \ud800\n" + RULE, "\x00", "\u202e" + RULE, "(" * 15_000, "f(" * 9_000]
)
def test_characters_that_are_none_and_deep_nesting_are_judged(prolog, rules):
    assert judge(prolog, rules).judged


@needs_prolog
@pytest.mark.parametrize("rules", ["", "   ", "\n"])
def test_an_empty_program_gets_nothing_not_even_the_floor(prolog, rules):
    verdict = judge(prolog, rules)
    assert verdict.score == 0.0
    assert verdict.status is VerdictStatus.UNPARSEABLE
    assert judge(prolog, rules, stop_reason=StopReason.LENGTH).status is VerdictStatus.TRUNCATED


@needs_prolog
@pytest.mark.parametrize(
    ("rules", "flag"),
    [
        ("toxic(X) :- toxic(X), leaf(X, _).", "timeout"),
        ("toxic(X) :- leaf(X, _), loop. loop :- loop.", "timeout"),
        ("toxic(X) :- between(1, inf, N), N < 0, leaf(X, _).", "timeout"),
        ("toxic(X) :- length(L, 1000000000), leaf(X, L).", "memory"),
    ],
)
def test_a_proof_without_end_is_the_policys_doing(prolog, rules, flag):
    verdict = judge(prolog, rules)
    assert verdict.judged
    assert verdict.score == 0.0
    assert verdict.flags == (flag,)


@needs_prolog
def test_equal_attempts_get_equal_verdicts_and_another_seed_other_names(prolog):
    assert judge(prolog, LAST_CHARACTER) == judge(prolog, LAST_CHARACTER)
    assert judge(replace(prolog, seed=1), FACTS).score == 0.5


@needs_prolog
def test_constant_free_rules_get_the_same_from_both_checks(prolog):
    # random conjunctions over leaf, colour and their negations, none of which names a plant or a leaf
    rng = random.Random(5)
    for _ in range(25):
        goals = rng.sample(
            ["leaf(X, L)", "colour(L, purple)", "colour(L, green)", "\\+ colour(L, green)", "leaf(Y, L)"], 3
        )
        verdict = judge(prolog, f"toxic(X) :- leaf(X, _), {', '.join(goals)}.")
        assert verdict.parts["partial_extensional"] == verdict.parts["partial_isomorphic"], goals


@needs_prolog
def test_every_predicate_called_pure_exists():
    source = files("peira") / "verifiers/rules/judge.pl"
    goal = (
        f"load_files('{source}', [initialization(restore)]),"
        "forall(judge:pure(N/A),"
        "       (functor(H, N, A), (predicate_property(pure:H, defined) -> true ; writeln(N/A)))),"
        "halt"
    )
    said = subprocess.run(
        ["swipl", "-q", "-f", "none", "-g", goal], capture_output=True, text=True, timeout=60, check=False
    )
    assert said.stdout == ""
    assert said.returncode == 0


@dataclass(frozen=True)
class BrokenSandbox:
    def run(self, argv, **options):
        raise SandboxError("sandbox: start: no namespaces here")


@needs_prolog
def test_a_broken_sandbox_leaves_the_rule_unjudged():
    with pytest.raises(VerifierError, match="the rule is unjudged: sandbox: start"):
        judge(PrologVerifier(sandbox=BrokenSandbox()), RULE)


def test_without_prolog_nothing_is_judged_and_the_way_to_get_it_is_named():
    with pytest.raises(VerifierError, match="no-such-prolog: expected SWI-Prolog on the PATH; apt-get"):
        judge(PrologVerifier(sandbox=BrokenSandbox(), swipl="no-such-prolog"), RULE)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"positive": []}, "expected at least one example of each"),
        ({"negative": []}, "expected at least one example of each"),
        ({"negative": ["safe(p2)"]}, r"safe\(p2\): expected an example of toxic/1"),
        ({"positive": ["toxic(purple)"]}, r"toxic\(purple\): expected objects as arguments"),
        ({"attributes": ["l1"]}, "'l1' is an object and an attribute"),
        ({"background": ["toxic(p1)"]}, r"toxic\(p1\) tells a label"),
        ({"background": ["safe(p2)"]}, r"safe\(p2\) tells a label"),
        ({"negative": ["toxic(p1)"]}, "an example is positive and negative"),
        ({"background": ["leaf(X, l1)"]}, "expected a ground fact"),
        ({"background": "leaf(p1, l1)"}, "expected a list of texts"),
        ({"objects": None}, "expected a list of texts"),
    ],
)
def test_a_task_that_renaming_cannot_protect_is_refused(change, words):
    task = Task(id="t", prompt="", info={"induction": {**PLANTS, **change}})
    with pytest.raises(VerifierError, match=words):
        Induction.of(task)


def test_without_a_task_there_is_nothing_to_judge():
    with pytest.raises(VerifierError, match=r"task 't': info\.induction = None"):
        Induction.of(Task(id="t", prompt=""))


@pytest.mark.parametrize(
    "names",
    [
        {"p1": "p3", "p3": "p1"},  # a permutation leaves a list of names right
        {"p1": "purple"},
        {"p1": "leaf"},
        {"p1": "toxic"},
        {"p1": "safe"},
        {"p1": "said"},
        {"p1": "m2"},  # the name that p2 gets
    ],
)
def test_names_that_are_in_use_are_refused(names):
    plants = Induction.of(TASK)
    fresh = {thing: f"m{i}" for i, thing in enumerate(sorted(plants.objects))}
    assert plants.renamed(fresh, in_use={"said"}).objects == frozenset(fresh.values())
    with pytest.raises(ValueError, match="names"):
        plants.renamed({**fresh, **names}, in_use={"said"})


def test_whole_constants_are_renamed_and_no_part_of_a_longer_one():
    facts = ["r(p1, p10)", "r(p10, red)"]
    info = {**PLANTS, "background": facts, "objects": [*PLANTS["objects"], "p10"]}
    task = Induction.of(Task(id="t", prompt="", info={"induction": info}))
    names = {thing: f"z{i}" for i, thing in enumerate(sorted(task.objects))}
    renamed = [str(fact) for fact in task.renamed(names).background]
    assert renamed == [f"r({names['p1']},{names['p10']})", f"r({names['p10']},red)"]


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("[RULE]a.[/RULE] no: [rule] b. [/rule]", "b."),
        ("```prolog\na.\n```", "a.\n"),
        ("```python\nx\n```", None),
        ("a.", "a."),
        ("<think>[RULE]a.[/RULE]</think>[RULE]b.[/RULE]", "b."),
        ("<think>[RULE]a.[/RULE]", None),
        ("[RULE]a.", None),
        ("", None),
        ("x" * 30_000, None),
    ],
)
def test_the_last_rule_part_counts_and_thinking_does_not(text, rules):
    assert rules_in(text) == rules
