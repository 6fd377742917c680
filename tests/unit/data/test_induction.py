import random

import pytest

from peira.config.data import SourceConfig
from peira.data.induction import Box, Rule, induction_task
from peira.data.prompt import PromptStyle
from peira.data.source import open_source
from peira.errors import ConfigError
from peira.verifiers.rules.induction import Induction


def item(colour, shape="cube", size="small"):
    return {"colour": colour, "shape": shape, "size": size}


def box(*items, touching=()):
    return Box(items=items, touching=frozenset(touching))


def test_a_rule_wants_one_item_with_all_attributes():
    rule = Rule(wanted=({"colour": "red", "shape": "ball"},))
    assert rule.holds(box(item("blue"), item("red", "ball")))
    assert not rule.holds(box(item("red"), item("blue", "ball")))


def test_touching_is_between_the_wanted_items():
    rule = Rule(wanted=({"colour": "red"}, {"colour": "blue"}), touching=True)
    items = (item("red"), item("blue"), item("blue"))
    assert rule.holds(box(*items, touching=[(0, 2), (2, 0)]))
    assert not rule.holds(box(*items, touching=[(1, 2), (2, 1)]))


def test_two_variables_may_be_one_item_as_in_prolog():
    assert Rule(wanted=({"colour": "red"}, {"shape": "cube"})).holds(box(item("red")))


def test_an_unwanted_item_rules_a_box_out():
    rule = Rule(wanted=({"colour": "red"},), unwanted={"shape": "cone"})
    assert rule.holds(box(item("red")))
    assert not rule.holds(box(item("red"), item("blue", "cone")))


def test_a_rule_is_written_in_prolog():
    rule = Rule(wanted=({"colour": "red"}, {"shape": "ball"}), touching=True, unwanted={"size": "large"})
    assert str(rule) == (
        "chosen(X) :- has(X, I), colour(I, red), has(X, J), shape(J, ball), touching(I, J), "
        "\\+ (has(X, U), size(U, large))."
    )


@pytest.mark.parametrize("level", range(1, 6))
def test_tasks_grow_are_balanced_and_can_be_judged(level):
    prompt, answer, info = induction_task(random.Random(level), level)
    induction = Induction.of(open_task(info))
    assert len(induction.positive) == len(induction.negative) == 3 + level
    assert induction.floor == 0.5
    assert all(f"{fact}".replace(",", ", ") + "." in prompt for fact in induction.background)
    assert answer.startswith("[RULE]chosen(X) :- ")
    assert answer[6:-7] not in prompt


def open_task(info):
    from peira.types.task import Task

    return Task(id="t", prompt="", info=info)


def test_the_source_gives_levels_in_turn_and_equal_tasks_for_equal_settings():
    def load():
        config = SourceConfig(path="synthetic:induction", size=6, options={"level": 1, "max_level": 3})
        return open_source(config).load(PromptStyle())

    table = load()
    assert [task.info["level"] for task in table.tasks] == [1, 2, 3, 1, 2, 3]
    assert load().tasks == table.tasks
    assert len(set(table.keys)) == 6


@pytest.mark.parametrize(
    "options", [{"level": 0}, {"level": 6}, {"level": 3, "max_level": 2}, {"level": "1"}]
)
def test_levels_outside_of_what_there_is_are_refused(options):
    with pytest.raises(ConfigError, match="expected a whole number from 1 to 5"):
        open_source(SourceConfig(path="synthetic:induction", options=options)).load(PromptStyle())
