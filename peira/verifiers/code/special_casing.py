"""A static look at a program for signs that it knows its tests: flags, never merged with a score."""

import ast
from collections.abc import Iterator
from typing import Any

from peira.verifiers.code.suite import CallTest, StdioTest, Suite

MAX_CHARACTERS = 20_000
"""Longer programs are not looked at: a flag must not cost more than a verdict."""
MAX_LITERAL = 400
"""Characters of one literal, on one line."""
_EXITS = {("sys", "exit"), ("os", "_exit"), ("os", "abort"), ("os", "kill"), ("os", "killpg")}
_PATCHED = {"builtins", "unittest", "pytest", "_pytest", "inspect", "gc"}


def special_casing(source: str, suite: Suite) -> tuple[str, ...]:
    """Flags, in this order:

    * `lookup_table`: a mapping, or a chain of comparisons, that holds at least two and half of the test
      inputs.
    * `test_literals`: at least two and half of the expected outputs stand in the source, long enough to be no
      accident.
    * `exits`: it ends or kills processes.
    * `touches_harness`: it imports or rewires what judges programs.
    """
    if len(source) > MAX_CHARACTERS:
        return ()
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    inputs, outputs = _literals_of(suite)
    flags = []
    if _held(inputs, set(_keys(tree))):
        flags.append("lookup_table")
    if _held({text for text in outputs if len(text) >= 4}, set(_constants(tree))):
        flags.append("test_literals")
    if any(_attribute(node) in _EXITS for node in ast.walk(tree)):
        flags.append("exits")
    if _imports(tree) & _PATCHED:
        flags.append("touches_harness")
    return tuple(flags)


def _literals_of(suite: Suite) -> tuple[set[str], set[str]]:
    inputs: set[str] = set()
    outputs: set[str] = set()
    for test in suite if isinstance(suite, list | tuple) else ():
        if isinstance(test, CallTest):
            inputs.add(_key(test.args[0] if len(test.args) == 1 else test.args))
            outputs.add(_key(test.expected))
        elif isinstance(test, StdioTest):
            inputs.add(_key(test.stdin.strip()))
            outputs.add(_key(test.stdout.strip()))
    return inputs, outputs


def _held(wanted: set[str], found: set[str]) -> bool:
    hits = len(wanted & found)
    return hits >= 2 and 2 * hits >= len(wanted)


def _key(value: Any) -> str:
    return repr(value.strip() if isinstance(value, str) else value)


def _constants(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.Tuple | ast.List | ast.Dict | ast.Set):
            yield from _value(node)


def _keys(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key in node.keys:
                yield from _value(key)
        elif isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                yield from _value(side)
        elif isinstance(node, ast.MatchValue):
            yield from _value(node.value)


def _value(node: ast.AST | None) -> Iterator[str]:
    if not isinstance(node, ast.expr) or node.lineno != node.end_lineno:
        return
    if (node.end_col_offset or 0) - node.col_offset > MAX_LITERAL:
        return
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return
    yield _key(value)
    if isinstance(value, tuple):
        yield _key(list(value))


def _attribute(node: ast.AST) -> tuple[str, str] | None:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.value.id, node.attr
    return None


def _imports(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names
