"""A recipe file and `a.b=c` overrides become one `RunConfig`, or one error that names everything wrong.

Layers, later over earlier: field defaults, the preset row that `algorithm.name` chooses, the recipe, the
command line. OmegaConf reads the YAML and fills in `${other.setting}`; pydantic checks types and ranges; the
messages are ours: `place: key = value: expected X; way out`, one line per problem, all problems at once.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from peira.config.algorithm import AlgorithmConfig
from peira.config.aliases import translate
from peira.config.presets import PRESETS
from peira.config.run import RunConfig
from peira.config.section import Section, Shape, kind_of, settings, shape
from peira.errors import ConfigError

COMMAND_LINE = "command line"
Notice = Callable[[str], None]
_OVERRIDE = re.compile(r"(?P<path>[A-Za-z_]\w*(?:\.\w+)*)(?P<append>\+?)=(?P<value>.*)", re.DOTALL)
_ONE_OF = (("data.path", "data.sources"), ("data.eval_path", "data.eval_sources"))
_UNKNOWN = object()
Root = TypeVar("Root", bound=Section)


def load_config(
    source: str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    notice: Notice = lambda text: print(text, file=sys.stderr),
) -> RunConfig:
    """The configuration of one run; a recipe without a `name` has that of its file.

    Args:
        source: a YAML file, or the settings themselves.
        overrides: `a.b=value`, `list.0.key=value`, `list+=value`; values are YAML, later ones win.
        notice: told, one line each, what names from other trainers became and what an override replaced.

    Raises:
        ConfigError: whatever is wrong with the settings, one line per problem.
    """
    return load_settings(RunConfig, source, overrides, notice=notice)


def load_settings(
    root: type[Root],
    source: str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    notice: Notice = lambda text: print(text, file=sys.stderr),
) -> Root:
    """`load_config` for any section that stands for a whole file."""
    draft = _Draft(root, notice)
    if isinstance(source, Mapping):
        draft.read(dict(source))
    else:
        draft.read_file(Path(source))
    for override in overrides:
        draft.override(override)
    values = draft.resolved()
    if not isinstance(source, Mapping) and "name" in root.model_fields:
        values.setdefault("name", Path(source).stem)
    lines = [*draft.problems, *draft.switches(values)]
    try:
        config = root.model_validate(values)
    except ValidationError as error:
        lines += [line for problem in error.errors() for line in _report(problem, draft, values)]
    if lines:
        raise ConfigError("\n".join(dict.fromkeys(lines)))
    return config


def nearest(name: str, candidates: Sequence[str]) -> str | None:
    """The candidate that was probably meant; None when none is close."""
    found = get_close_matches(name, candidates, n=1, cutoff=0.6)
    return found[0] if found else None


@dataclass
class _Draft:
    """Settings before they are typed, and where each was given."""

    root: type[Section]
    notice: Notice
    file: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    """Of the file, by the path that stands there."""
    places: dict[str, str] = field(default_factory=dict)
    """Where each of our settings came from, in words."""
    assumed: set[str] = field(default_factory=set)
    """Settings that an alias implies and another may still overrule."""
    problems: list[str] = field(default_factory=list)
    """Foreign names that could not be translated."""

    def place(self, path: str) -> str:
        """Where this setting, or something in it, was given; or else the closest group around it."""
        inside = next((where for key, where in self.places.items() if key.startswith(f"{path}.")), None)
        if path not in self.places and inside is not None:
            return inside
        while path and path not in self.places:
            path = path.rpartition(".")[0]
        return self.places.get(path, self.file or "settings")

    def read_file(self, path: Path) -> None:
        self.file = str(path)
        text = _text(path)
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            if root is None or root.tag == "tag:yaml.org,2002:null":
                raise ConfigError(
                    f"{path}: expected settings, found an empty file; docs/config.md lists them"
                )
            if not isinstance(root, yaml.MappingNode):
                raise ConfigError(f"{path}:1: expected lines of `setting: value`, found something else")
            self._mark(root, "")
            self.read(_plain(OmegaConf.create(text)))
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
            raise ConfigError(f"{where}: expected YAML: {error.problem or error.context}") from None
        except (yaml.YAMLError, OmegaConfBaseException) as error:
            raise ConfigError(f"{path}: expected YAML: {_first_line(error)}") from None

    def _mark(self, node: yaml.Node, prefix: str, around: tuple[yaml.Node, ...] = ()) -> None:
        """Remember the line of every key; refuse a key that stands twice, and an anchor within itself."""
        if node in around:
            raise ConfigError(
                f"{self.file}:{node.start_mark.line + 1}: {prefix.rstrip('.')}: refers to itself; "
                "write the value out"
            )
        children: list[tuple[str, yaml.Node, yaml.Node]] = []
        if isinstance(node, yaml.MappingNode):
            children = [(str(key.value), key, value) for key, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            children = [(str(index), item, item) for index, item in enumerate(node.value)]
        for name, mark, child in children:
            line = mark.start_mark.line + 1
            if f"{prefix}{name}" in self.lines and name != "<<":
                first = self.lines[f"{prefix}{name}"]
                raise ConfigError(
                    f"{self.file}:{line}: {prefix}{name}: given before, in line {first}; keep one"
                )
            self.lines[f"{prefix}{name}"] = line
            self._mark(child, f"{prefix}{name}.", (*around, node))

    def read(self, values: dict[str, Any]) -> None:
        """Take a whole tree."""
        for name, value in values.items():
            for given in self._assignments(str(name), value, self._place_in_file):
                path, place = given.path, self._place_in_file(given.source)
                if not self._yields(given, place):
                    if path in self.places and path not in self.assumed:
                        raise ConfigError(
                            f"{place}: {given.source}: expected {path} once, it is given already "
                            f"({self.places[path]}); keep one"
                        )
                    self._put(given, place)
                    for known, line in self.lines.items():
                        if known.startswith(f"{given.source}."):
                            below = known.removeprefix(given.source)
                            self.places[f"{path}{below}"] = f"{self.file}:{line}"

    def _place_in_file(self, path: str) -> str:
        while path and path not in self.lines:
            path = path.rpartition(".")[0]
        return f"{self.file}:{self.lines[path]}" if path else self.file or "settings"

    def override(self, text: str) -> None:
        """One `a.b=value` from the command line over what is there."""
        match = _OVERRIDE.fullmatch(text)
        if match is None:
            raise ConfigError(
                f"{COMMAND_LINE}: {text!r}: expected setting=value, as in sampling.max_tokens=64"
            )
        path = self._only_verifier(match["path"])
        try:
            value = _value(match["value"], _lookup(self.root, path))
        except (yaml.YAMLError, OmegaConfBaseException) as error:
            raise ConfigError(
                f"{COMMAND_LINE}: {path} = {match['value']!r}: expected a YAML value: {_first_line(error)}; "
                "quote text with special characters"
            ) from None
        if match["append"]:
            value = [*self._list_at(path), *(value if isinstance(value, list) else [value])]
        for given in self._assignments(path, value, lambda _: COMMAND_LINE):
            if not self._yields(given, COMMAND_LINE):
                self._give_way(given.path, given.value)
                self._put(given, COMMAND_LINE)

    def _only_verifier(self, path: str) -> str:
        """`verifier.X` is short for `verifiers.0.X` where there is one, as `verifier` is for the whole."""
        head, _, setting = path.partition(".")
        if head != "verifier" or not setting or _lookup(self.root, "verifiers") is _UNKNOWN:
            return path
        given = self.values.setdefault("verifiers", [{}])
        if isinstance(given, list) and len(given) > 1:
            raise ConfigError(
                f"{COMMAND_LINE}: {path}: expected the position of one of {len(given)} verifiers; write "
                f"verifiers.0.{setting}, or another number"
            )
        return f"verifiers.0.{setting}"

    def _list_at(self, path: str) -> list[Any]:
        path = "verifiers" if path == "verifier" else path
        found = _lookup(self.root, path)
        if not isinstance(found, Shape) or not found.many:
            raise ConfigError(f"{COMMAND_LINE}: {path}+=: expected a list of sections to add to; use =")
        old = _at(self.values, path)
        return old if isinstance(old, list) else []

    def _assignments(self, path: str, value: Any, place: Callable[[str], str]) -> Iterator["_Given"]:
        """Single settings under our names: scalars in their long form, foreign names translated."""
        source = path
        path = "verifiers" if path == "verifier" else path
        found = _lookup(self.root, path)
        if found is _UNKNOWN:
            try:
                renamed = translate(path, value, place(path)) if self.root is RunConfig else None
            except ConfigError as error:
                self.problems.append(str(error))
                return
            if renamed is not None:
                became = ", ".join(f"{ours}={new}" for ours, new, _ in renamed) or "what peira does anyway"
                self.notice(f"{place(path)}: {path}={value} is read as {became}")
                for ours, new, assumed in renamed:
                    for given in self._assignments(ours, new, place):
                        yield _Given(given.path, given.value, source=path, assumed=assumed)
                return
        elif isinstance(found, Shape):
            value = found.expand(value)
        if isinstance(value, dict) and value and (found is _UNKNOWN or isinstance(found, Shape)):
            for name, part in value.items():
                yield from self._assignments(f"{path}.{name}", part, place)
        else:
            yield _Given(path, value, source=source)

    def _yields(self, given: "_Given", place: str) -> bool:
        """Whether an implied value meets one that was given outright in the same layer."""
        same_layer = (self.places.get(given.path) == COMMAND_LINE) == (place == COMMAND_LINE)
        return given.assumed and given.path in self.places and same_layer

    def _put(self, given: "_Given", place: str) -> None:
        parts = given.path.split(".")
        node: Any = self.values
        for depth, part in enumerate(parts[:-1]):
            child = _child(node, part)
            if not isinstance(child, dict | list):
                group = ".".join(parts[: depth + 1])
                found = _lookup(self.root, group)
                child = [] if isinstance(found, Shape) and found.many else {}
                self._set(node, part, child, group)
            node = child
        self._set(node, parts[-1], given.value, given.path)
        for below in [key for key in self.places if key.startswith(f"{given.path}.")]:
            del self.places[below]
        self.places[given.path] = place
        (self.assumed.add if given.assumed else self.assumed.discard)(given.path)

    def _set(self, node: Any, part: str, value: Any, path: str) -> None:
        if isinstance(node, dict):
            node[part] = value
        elif part.isdigit() and int(part) < len(node):
            node[int(part)] = value
        else:
            there = f"a position below {len(node)}" if node else "none: the list is empty"
            raise ConfigError(
                f"{COMMAND_LINE}: {path}: expected {there}; add one with {path.rpartition('.')[0]}+=..."
            )

    def _give_way(self, path: str, value: Any) -> None:
        """Drop what an override makes meaningless, and say so."""
        for pair in _ONE_OF:
            if path in pair:
                self._drop(pair[1 - pair.index(path)], because=path)
        old = _at(self.values, path)
        if old is None or old == value:
            return
        group, _, name = path.rpartition(".")
        if path == "model.name":
            self._drop("model.revision", because=path)
        elif path == "algorithm.name":
            if old in PRESETS:
                implied = AlgorithmConfig(name=old).model_dump(mode="json")
                _prune(self.values["algorithm"], implied)
        elif name == "kind" and isinstance(found := _lookup(self.root, group), Shape):
            member = found.kinds.get(str(value))
            for key in list(_at(self.values, group)) if member is not None else []:
                if member is not None and key not in member.model_fields:
                    self._drop(f"{group}.{key}", because=f"{path}={value}")

    def _drop(self, path: str, *, because: str) -> None:
        if _at(self.values, path) is not None and self.place(path) != COMMAND_LINE:
            self.notice(f"{COMMAND_LINE}: {because} puts {path} of {self.place(path)} out of force")
            self._forget(path)

    def _forget(self, path: str) -> None:
        group, _, name = path.rpartition(".")
        _at(self.values, group).pop(name)
        for known in [key for key in self.places if f"{key}.".startswith(f"{path}.")]:
            del self.places[known]

    def resolved(self) -> dict[str, Any]:
        """Plain values, `${...}` filled in."""
        try:
            values = _plain(OmegaConf.create(self.values), resolve=True)
        except OmegaConfBaseException as error:
            path = str(error.full_key or "")
            raise ConfigError(f"{self.place(path)}: {path}: {_first_line(error)}") from None
        for name, info in self.root.model_fields.items():
            found = shape(info.annotation)
            one_of_several = found is not None and found.kinds and not found.many
            if one_of_several and isinstance(values.get(name), dict) and isinstance(info.default, Section):
                values[name].setdefault("kind", kind_of(type(info.default)))
        return values

    def switches(self, values: dict[str, Any]) -> Iterator[str]:
        """One line for each true or false that was given for a number: Python would count it as 1 or 0."""
        for path, place in self.places.items():
            value, found = _at(values, path), _lookup(self.root, path)
            accepted = set(get_args(found)) or {found}
            if isinstance(value, bool) and accepted & {int, float} and bool not in accepted:
                kind = "whole number" if int in accepted else "number"
                yield f"{place}: {path} = {_shown(value)}: expected a {kind}"


@dataclass(frozen=True, slots=True)
class _Given:
    """One setting under our name."""

    path: str
    value: Any
    source: str
    """The name it was given under."""
    assumed: bool = False
    """Implied by an alias; an outright value in the same layer wins."""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = nearest(path.name, [other.name for other in path.parent.glob("*.y*ml")])
        hint = f"did you mean {path.parent / near}?" if near else "give the path of a YAML file"
        raise ConfigError(f"{path}: expected a recipe file, found none; {hint}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: expected UTF-8 text; give the path of a YAML file") from None
    except OSError as error:
        raise ConfigError(f"{path}: expected a readable recipe file: {error.strerror}") from None


def _plain(config: Any, *, resolve: bool = False) -> dict[str, Any]:
    tree: Any = OmegaConf.to_container(config, resolve=resolve)
    return dict(tree)


def _value(text: str, found: Any) -> Any:
    """The value that an override's text stands for; settings that are text take it as it is."""
    if found is str and text[:1] not in ("'", '"') and text not in ("null", "~"):
        return text
    return OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]))["value"]  # type: ignore[call-overload, index]


def _lookup(root: type[Section], path: str) -> Any:
    """What stands at a path: a `Shape`, `str` for text, another annotation, or `_UNKNOWN`."""
    found: Any = Shape((root,))
    for part in path.split("."):
        if not isinstance(found, Shape):
            return found if found in (dict, Any) else _UNKNOWN
        if found.many:
            if not part.isdigit():
                return _UNKNOWN
            found = Shape(found.members)
            continue
        annotations = [m.model_fields[part].annotation for m in found.members if part in m.model_fields]
        if not annotations:
            return _UNKNOWN
        inner = shape(annotations[0])
        found = inner if inner is not None else _plain_type(annotations[0])
    return found


def _plain_type(annotation: Any) -> Any:
    """`str` for settings that hold nothing but text (or None), `dict` for free mappings."""
    parts = set(getattr(annotation, "__args__", ())) - {type(None)}
    if annotation is str or parts == {str}:
        origin = getattr(annotation, "__origin__", None)
        return annotation if origin is tuple else str
    return dict if getattr(annotation, "__origin__", None) is dict else annotation


def _child(node: Any, part: str) -> Any:
    if isinstance(node, dict):
        return node.get(part)
    if isinstance(node, list) and part.isdigit() and int(part) < len(node):
        return node[int(part)]
    return None


def _at(tree: Any, path: str) -> Any:
    for part in path.split("."):
        tree = _child(tree, part)
    return tree


def _prune(given: dict[str, Any], implied: Mapping[str, Any]) -> None:
    """Take out what is as it would be anyway: a resolved configuration states everything."""
    for key in list(given):
        if isinstance(given[key], dict) and isinstance(implied.get(key), dict):
            _prune(given[key], implied[key])
            if not given[key]:
                del given[key]
        elif key in implied and given[key] == implied[key]:
            del given[key]


def _first_line(text: object) -> str:
    return str(text).strip().partition("\n")[0].rstrip(".")


# ---------------------------------------------------------------- pydantic's errors in the house form


def _report(problem: Mapping[str, Any], draft: _Draft, values: dict[str, Any]) -> Iterator[str]:
    path, section = _locate(draft.root, problem["loc"], values)
    kind, context, value = problem["type"], problem.get("ctx", {}), problem["input"]
    if kind == "too_short" and len(value) >= context["min_length"]:
        return  # its members were counted after those with errors of their own had been left out
    if kind == "value_error":
        for line in str(context["error"]).splitlines():
            named = re.match(r"[\w.]+(?= = )|\w+(?=: )", line)
            inner = ".".join(filter(None, (path, named[0]))) if named else path
            if inner != path and not line.startswith(" = ", named.end() if named else 0):
                inner = path if _lookup(draft.root, inner) is _UNKNOWN else inner
            shown = (": " if inner == path else ".").join(filter(None, (path, line)))
            yield f"{draft.place(inner)}: {shown}"
        return
    if kind == "extra_forbidden":
        yield f"{draft.place(path)}: {path} = {_shown(value)}: {_unknown(draft.root, path, section)}"
    elif kind == "missing" or (value is None and kind.startswith(("model", "tuple", "dict"))):
        name = path.rpartition(".")[2]
        info = section.model_fields.get(name)
        meaning = f" ({_first_line(info.description)})" if info is not None and info.description else ""
        yield f"{draft.place(path)}: {path}: expected a value{meaning}, none is given; add {path}=..."
    else:
        if kind == "union_tag_invalid" and isinstance(value, Mapping):
            path, value = f"{path}.kind", value["kind"]
        expected = _expected(kind, context, value, problem["msg"])
        yield f"{draft.place(path)}: {path} = {_shown(value)}: expected {expected}"


def _locate(root: type[Section], loc: tuple[int | str, ...], values: Any) -> tuple[str, type[Section]]:
    """The dotted path of an error, and the section it lies in; pydantic's union tags left out."""
    parts: list[str] = []
    section = root
    found: Shape | None = Shape((root,))
    node = values
    for item in loc:
        if found is not None and found.kinds and not found.many and item in found.kinds:
            section, found = found.kinds[str(item)], Shape((found.kinds[str(item)],))
            continue
        parts.append(str(item))
        node = _child(node, str(item))
        if found is None:
            continue
        if found.many:
            found = Shape(found.members)
        else:
            section = found.member(node) or section if found.kinds else found.members[0]
            info = section.model_fields.get(str(item))
            found = shape(info.annotation) if info is not None else None
    return ".".join(parts), section


def _shown(value: Any) -> str:
    """A value as one writes it in YAML where Python spells it otherwise."""
    return json.dumps(value) if value is None or isinstance(value, bool) else repr(value)


def _unknown(root: type[Section], path: str, section: type[Section]) -> str:
    group, _, name = path.rpartition(".")
    names = list(section.model_fields)
    everywhere = [
        found for found, _, _ in settings(root) if "[]" not in found and not path.startswith(f"{found}.")
    ]
    close = nearest(name, names)
    if close is not None:
        meant = f"{group}.{close}" if group else close
    else:
        same = [other for other in everywhere if other.rpartition(".")[2] == name]
        meant = same[0] if same else (nearest(path, everywhere) or "")
    hint = f"did you mean {meant}? There" if meant else "there"
    return f"expected a setting{f' of {group}' if group else ''}; {hint} are: {', '.join(names)}"


def _expected(kind: str, context: Mapping[str, Any], value: Any, message: str) -> str:
    bounds = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    for key, words in bounds.items():
        if key in context:
            return f"{words} {context[key]:g}"
    if kind in ("literal_error", "union_tag_invalid"):
        text = str(context.get("expected", context.get("expected_tags", "")))
        options = re.findall(r"'([^']*)'", text)
        given = str(context.get("tag", value))
        close = nearest(given, options)
        hint = f"; did you mean {close}?" if close else ""
        if "function" in options and given.endswith(".py"):
            hint = f"; a function in a file is {given}:NAME"
        return f"one of {', '.join(options)}{hint}"
    if kind == "union_tag_not_found":
        tight = [key for key in value if ":" in str(key)] if isinstance(value, Mapping) else []
        way_out = f"put a space behind the colon of {tight[0]}" if tight else "add `kind: ...`"
        return f"a `kind` that says which one is meant; {way_out}"
    if kind in ("too_short", "too_long"):
        length = context.get("min_length", context.get("max_length"))
        return f"{'at least' if kind == 'too_short' else 'at most'} {length} of them"
    for start, words in {
        "string_too_short": "some text",
        "int": "a whole number",
        "float": "a number",
        "finite_number": "a finite number",
        "bool": "true or false",
        "string": "text; put it in quotes",
        "tuple": "a list, as in [a, b]",
        "dict": "names with values, as in {a: b}",
        "model": "a group of settings, as in {a: b}",
    }.items():
        if kind.startswith(start):
            return words
    return message[:1].lower() + message[1:]
