"""A configuration as people read it: YAML with comments, what differs from the defaults, docs/config.md."""

import json
import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic.fields import FieldInfo

from peira.config.algorithm import AlgorithmConfig
from peira.config.aliases import REFUSED, TRANSLATED
from peira.config.presets import PRESETS
from peira.config.run import RunConfig
from peira.config.section import Section, kind_of, shape


def as_yaml(config: Section, *, comments: bool = False) -> str:
    """Every setting with its value; `load_config` reads it back to an equal configuration.

    Args:
        comments: put the first line of each setting's meaning behind it.
    """
    return "\n".join(_lines(config, "", comments)) + "\n"


def differences(run: RunConfig) -> dict[str, Any]:
    """Settings away from their default (their preset's, where it fills them), by dotted path."""
    return dict(_changed(run, ""))


def settings_page() -> str:
    """Markdown for docs/config.md: each setting with type, default and meaning."""
    parts = [
        "# Settings",
        "This page is generated from the classes in `peira/config/` "
        "(`python -m peira.config.show > docs/config.md`). "
        "A recipe is a YAML file of these settings; `setting=value` on the command line changes one, "
        "`list.0.setting=value` one of a list, `list+=value` adds to it. `${other.setting}` stands for "
        "another setting's value. A scalar given for a section sets the field named in its heading.",
        *_section_page(RunConfig, "", "The run"),
        "## Presets of `algorithm`",
        "A preset fills every setting of `algorithm` that is not given.",
        _table(
            ("preset", "sets"),
            [
                (
                    f"`{name}`",
                    ", ".join(f"`{k}: {_inline(v)}`" for k, v in row.items()) or "the defaults above",
                )
                for name, row in PRESETS.items()
            ],
        ),
        "## Names from other trainers",
        "These names of TRL, verl and OpenRLHF are understood and announced.",
        _table(("name", "read as"), [(f"`{name}`", _target(name)) for name in TRANSLATED]),
        "These have no single meaning here, and are refused with the way out.",
        _table(("name", "what to do"), [(f"`{name}`", text) for name, text in REFUSED.items()]),
    ]
    return "\n\n".join(parts) + "\n"


def _lines(config: Section, indent: str, comments: bool) -> Iterator[str]:
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        note = f"  # {_first_line(field)}" if comments and field.description else ""
        if isinstance(value, Section):
            yield f"{indent}{name}:{note}"
            yield from _lines(value, f"{indent}  ", comments)
        elif isinstance(value, tuple) and value and isinstance(value[0], Section):
            yield f"{indent}{name}:{note}"
            for item in value:
                first, *rest = _lines(item, f"{indent}    ", comments)
                yield f"{indent}  - {first.lstrip()}"
                yield from rest
        else:
            yield f"{indent}{name}: {_inline(value)}{note}"


def _inline(value: Any) -> str:
    """One line of YAML that OmegaConf reads back: `${` is kept from being filled in."""
    plain = json.loads(json.dumps(value))
    text = yaml.safe_dump(plain, default_flow_style=True, width=10**9, allow_unicode=True, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...").replace("${", "\\${")


def _changed(config: Section, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        default = field.get_default(call_default_factory=True)
        if isinstance(value, AlgorithmConfig):
            default = AlgorithmConfig(name=value.name)
            if value.name != AlgorithmConfig.model_fields["name"].default:
                yield f"{prefix}{name}.name", value.name
        if isinstance(value, Section):
            base = default if type(default) is type(value) else None
            yield from _compared(value, base, f"{prefix}{name}.")
        elif isinstance(value, tuple) and value and isinstance(value[0], Section):
            for index, item in enumerate(value):
                yield from _compared(item, None, f"{prefix}{name}.{index}.")
        elif value != default:
            yield f"{prefix}{name}", value


def _compared(value: Section, base: Section | None, prefix: str) -> Iterator[tuple[str, Any]]:
    """Changes against `base`; against the class's own defaults, the kind included, without one."""
    if base is None:
        if "kind" in type(value).model_fields:
            yield f"{prefix}kind", kind_of(type(value))
        yield from _changed(value, prefix)
        return
    for name in type(value).model_fields:
        ours, theirs = getattr(value, name), getattr(base, name)
        if isinstance(ours, Section):
            yield from _compared(ours, theirs if type(theirs) is type(ours) else None, f"{prefix}{name}.")
        elif ours != theirs:
            yield f"{prefix}{name}", ours


def _section_page(cls: type[Section], path: str, title: str) -> Iterator[str]:
    yield f"## {title}"
    yield _prose(cls.__doc__)
    rows, below = [], []
    for name, field in cls.model_fields.items():
        if name == "kind":
            continue
        inner = shape(field.annotation)
        where = f"{path}{name}"
        kind = _words(field.annotation, field.metadata) if inner is None else _section_words(inner.many)
        rows.append((f"`{where}`", kind, _default(field), _prose(field.description)))
        for member in inner.members if inner is not None else ():
            several = inner is not None and len(inner.members) > 1
            mark = f": `{kind_of(member)}`" if several else ""
            short = "" if member.shorthand is None else f" (a scalar is its `{member.shorthand}`)"
            many = inner is not None and inner.many
            below.append((member, f"{where}.{'N.' if many else ''}", f"`{where}`{mark}{short}"))
    if rows:
        yield _table(("setting", "type", "default", "meaning"), rows)
    for member, prefix, heading in below:
        yield from _section_page(member, prefix, heading)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Section):
        return f"`{kind_of(type(value))}`" if "kind" in type(value).model_fields else "as below"
    return f"`{_inline(value)}`"


def _section_words(many: bool) -> str:
    return "list of sections" if many else "section"


_WORDS: dict[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    Any: "anything",
}


def _words(annotation: Any, metadata: list[Any]) -> str:
    """A type for people: `number > 0`, `one of a, b`, `list of text`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        extra = [
            m for item in arguments[1:] for m in (item.metadata if isinstance(item, FieldInfo) else [item])
        ]
        return _words(arguments[0], [*extra, *metadata])
    if origin is Literal:
        return "one of " + ", ".join(f"`{choice}`" for choice in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if part is type(None) else _words(part, metadata) for part in arguments)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return f"list of {_words(arguments[0], [])}"
        return f"[{', '.join(_words(part, []) for part in arguments)}]"
    if origin is dict:
        return f"names with {_words(arguments[1], [])}"
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    bounds = [
        f"{sign} {getattr(item, key):g}"
        for item in metadata
        for key, sign in signs.items()
        if hasattr(item, key)
    ]
    return " ".join([_WORDS.get(annotation, str(annotation)), *filter(None, [" and ".join(bounds)])])


def _prose(text: str | None) -> str:
    return " ".join((text or "").split())


def _first_line(field: FieldInfo) -> str:
    return _prose((field.description or "").partition("\n")[0])


def _target(name: str) -> str:
    """Where an alias leads, found by trying the values it may have."""
    for value in (1, "x", True, [0.1, 0.2], "grpo", "linear", "k3", "token-mean", ["x"]):
        try:
            found = TRANSLATED[name](value)
        except (ValueError, TypeError):
            continue
        if found:
            return ", ".join(f"`{ours}`" for ours, _, _ in found)
    return ""


if __name__ == "__main__":
    print(settings_page(), end="")
