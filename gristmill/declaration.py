"""The strict reader of declarations: a file becomes a spec, or a list of problems with their lines.

Dagster reads the same file as YAML 1.1 and DVC as YAML 1.2. A scalar that the two read differently
(no, 010, 22:22, an unquoted date) is refused, so that every door sees one declaration.
"""

from __future__ import annotations

import difflib
import functools
import os
import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml as yaml11
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, DocumentStartEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from gristmill.errors import DeclarationError, InputError, Problem
from gristmill.spec import BETTER_WHEN_HIGHER, METRICS, PipelineSpec

FILE_NAME = "defs.yaml"
TYPE = "gristmill.Pipeline"
SCHEMA_FILE = Path("pipelines/schema.json")
MAX_BYTES = 1 << 20
MAX_ALIASES = 20
MAX_DEPTH = 50
# Dagster's own keys beside `type` and `attributes` are Dagster's to check.
DAGSTER_KEYS = ("template_vars_module", "requirements", "post_processing")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")

Path_ = tuple[str | int, ...]


@dataclass(frozen=True)
class Declaration:
    """A pipeline as its file declares it; its name is its folder's name."""

    name: str
    file: Path
    spec: PipelineSpec
    lines: Mapping[str, int]
    """The line of each key, by its dotted path."""

    @property
    def folder(self) -> Path:
        return self.file.parent


def read(file: Path) -> Declaration:
    """Read one pipeline's declaration; raises DeclarationError with every problem of the file."""
    name = file.parent.name
    lines, raw, problems = _load(file)
    if problems and raw is None:
        raise DeclarationError(problems)
    if not _NAME.fullmatch(name):
        text = f"the folder's name is the pipeline's name and may use letters, digits, - and _, got {name!r}"
        problems.append(Problem(file, 1, "", text))
    attributes = _attributes(file, raw, lines, problems)
    spec: PipelineSpec | None = None
    if attributes is not None:
        try:
            spec = PipelineSpec.model_validate(attributes)
        except ValidationError as error:
            unclear = {problem.path for problem in problems}
            found = [_phrase(file, lines, detail) for detail in error.errors(include_url=False)]
            # A union reports each of its alternatives: they read the same, and are said once.
            problems += [problem for problem in dict.fromkeys(found) if problem.path not in unclear]
    if problems or spec is None:
        raise DeclarationError(problems)
    return Declaration(name, file, spec, {_dotted(path): line for path, line in lines.items()})


def resolve_environment(text: str) -> str:
    """Fill `{{ env.NAME }}` in from the environment; raises InputError naming a variable that is not set."""

    def value(match: re.Match[str]) -> str:
        found = os.environ.get(match[1])
        if found is None:
            raise InputError(f"environment variable {match[1]} must be set, however it is not; export it")
        return found

    return re.sub(r"\{\{\s*env\.(\w+)\s*\}\}", value, text)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a whole declaration file, for editors."""
    schema = PipelineSpec.model_json_schema()
    definitions = schema.pop("$defs")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gristmill pipeline",
        "type": "object",
        "additionalProperties": False,
        "required": ["type", "attributes"],
        "properties": {"type": {"const": TYPE}, "attributes": schema} | {key: {} for key in DAGSTER_KEYS},
        "$defs": definitions,
    }


# Reading


def _load(file: Path) -> tuple[dict[Path_, int], Any, list[Problem]]:
    """The file's values and the line of each of them by its path; problems of the text itself."""

    def fault(line: int, text: str, path: str = "") -> tuple[dict[Path_, int], Any, list[Problem]]:
        return {}, None, [Problem(file, line, path, text)]

    if not file.is_file():
        raise InputError(f"{file} must be a declaration, however there is no such file")
    if file.stat().st_size > MAX_BYTES:
        return fault(1, f"a declaration may have at most 1 MiB, got {file.stat().st_size} bytes")
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return fault(1, f"must be UTF-8, however byte {error.start} is not")
    for number, line in enumerate(text.splitlines(), start=1):
        indent = line[: len(line) - len(line.lstrip())]
        if "\t" in indent:
            return fault(number, "tab used for indentation; use spaces")
    reader = YAML(typ="safe", pure=True)
    try:
        aliases = 0
        opened: list[str | None] = []
        for event in reader.parse(text):
            line = event.start_mark.line + 1
            if isinstance(event, DocumentStartEvent) and event.version not in (None, (1, 2)):
                return fault(line, "must be YAML 1.2; remove the %YAML line")
            if isinstance(event, AliasEvent):
                aliases += 1
                if event.anchor in opened:
                    return fault(line, f"*{event.anchor} stands inside what it names")
            if isinstance(event, CollectionStartEvent):
                opened.append(event.anchor)
                if len(opened) > MAX_DEPTH:
                    return fault(line, f"nested too deeply; at most {MAX_DEPTH} levels are allowed")
            if isinstance(event, CollectionEndEvent):
                opened.pop()
            tag = getattr(event, "tag", None)
            if tag is not None:
                return fault(line, f"tags are not allowed, got {tag}")
        if aliases > MAX_ALIASES:
            return fault(1, f"too many aliases: {aliases}, at most {MAX_ALIASES} are allowed")
        node = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return fault(mark.line + 1 if mark else 1, f"not YAML: {error.problem or error.context}")
    except ReaderError as error:
        return fault(text[: error.position].count("\n") + 1, f"not YAML: character #x{error.character:04x}")
    if node is None:
        return fault(1, "declaration is empty; start from `gristmill init`")
    lines: dict[Path_, int] = {}
    problems: list[Problem] = []
    raw = _construct(file, node, (), lines, problems)
    return lines, raw, problems


def _construct(file: Path, node: Node, path: Path_, lines: dict[Path_, int], problems: list[Problem]) -> Any:
    line = node.start_mark.line + 1
    lines.setdefault(path, line)
    if isinstance(node, SequenceNode):
        return [
            _construct(file, item, (*path, index), lines, problems) for index, item in enumerate(node.value)
        ]
    if isinstance(node, MappingNode):
        values: dict[str, Any] = {}
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            key_line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                text = 'a key must be text; quote a template: "{{ env.NAME }}"'
                problems.append(Problem(file, key_line, _dotted(path), text))
                continue
            key = str(key_node.value)
            if key != "<<":
                _check_scalar(file, key_node, (*path, key), problems)
            else:
                problems.append(Problem(file, key_line, _dotted(path), "merge keys are not allowed"))
            if key in seen:
                text = f"{key!r} given on lines {seen[key]} and {key_line}"
                problems.append(Problem(file, key_line, _dotted((*path, key)), text))
            seen[key] = key_line
            lines[(*path, key)] = key_line
            values[key] = _construct(file, value_node, (*path, key), lines, problems)
        return values
    assert isinstance(node, ScalarNode)
    _check_scalar(file, node, path, problems)
    return _scalar(node)


class _Unreadable:
    def __repr__(self) -> str:
        return "not readable"


def _scalar(node: ScalarNode) -> Any:
    """The value of a scalar as YAML 1.2's core schema has it; what is no number there (0b1) is text."""
    kind = str(node.tag).rsplit(":", 1)[-1]
    text = node.value.replace("_", "").lower()
    try:
        if kind == "int":
            return int(text, 0) if text.lstrip("+-")[:2] in ("0x", "0o") else int(text)
        if kind == "float":
            return float(text.replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        return node.value
    if kind == "null":
        return None
    if kind == "bool":
        return text == "true"
    return node.value


def _check_scalar(file: Path, node: ScalarNode, path: Path_, problems: list[Problem]) -> None:
    if node.style is not None:
        return
    loader = yaml11.SafeLoader("")
    tag = loader.resolve(yaml11.ScalarNode, node.value, (True, False))  # type: ignore[no-untyped-call]
    twin = yaml11.ScalarNode(tag, node.value)
    try:
        other = loader.construct_object(twin)
    except (ValueError, yaml11.YAMLError):
        other = _Unreadable()
    value = _scalar(node)
    # 1e-5 is text to YAML 1.1 and a number to 1.2; both arrive as the same number in a number's place.
    same_number = isinstance(value, float) and isinstance(other, str)
    if not same_number and (type(value) is not type(other) or repr(value) != repr(other)):
        shown = f"the date {other}" if hasattr(other, "isoformat") else _shown(other)
        given = node.value if len(node.value) <= 80 else node.value[:77] + "..."
        both_numbers = type(value) is int and type(other) is int
        way_out = f"write {value} or {other}" if both_numbers else "quote it"
        text = f"{given} is {_shown(value)} to YAML 1.2 (DVC) and {shown} to YAML 1.1 (Dagster); {way_out}"
        problems.append(Problem(file, node.start_mark.line + 1, _dotted(path), text))


def _attributes(
    file: Path, raw: Any, lines: dict[Path_, int], problems: list[Problem]
) -> dict[str, Any] | None:
    if not isinstance(raw, dict):
        problems.append(Problem(file, 1, "", f"must be a mapping with type: {TYPE} and attributes"))
        return None
    if raw.get("type") != TYPE:
        line = lines.get(("type",), 1)
        problems.append(Problem(file, line, "type", f"must be {TYPE}, got {raw.get('type')!r}"))
    known = ("type", "attributes", *DAGSTER_KEYS)
    for key in raw:
        if key not in known:
            text = f"unknown key {key!r}{_did_you_mean(key, known)}"
            problems.append(Problem(file, lines[(key,)], "", text))
    attributes = raw.get("attributes")
    if not isinstance(attributes, dict):
        line = lines.get(("attributes",), 1)
        problems.append(Problem(file, line, "attributes", "must be a mapping, the pipeline itself"))
        return None
    return attributes


# Phrasing


def _phrase(file: Path, lines: dict[Path_, int], detail: ErrorDetails) -> Problem:
    """One of pydantic's errors as a problem: its path in the file, its line and a plain sentence."""
    path, tag = _path_in_file(detail)
    line = next(
        lines[("attributes", *path[:depth])]
        for depth in range(len(path), -1, -1)
        if ("attributes", *path[:depth]) in lines
    )
    return Problem(file, line, _dotted(path), _sentence(path, tag, detail))


# The label that pydantic puts behind the path of a value that is none of a union's plain types.
_LABELS = {"bool_type": "bool", "int_type": "int", "int_from_float": "int", "string_type": "str"}


def _path_in_file(detail: ErrorDetails) -> tuple[Path_, str]:
    """pydantic's location without what its unions add to it, and the tag of the last union."""
    path: list[str | int] = []
    tag = ""
    union = False
    for part in detail["loc"]:
        if union:
            tag = str(part)
        elif part != "[key]":
            path.append(part)
        union = not union and _is_tagged(tuple(path))
    if _in_plain_union(detail):
        path.pop()
    return tuple(path), tag


def _in_plain_union(detail: ErrorDetails) -> bool:
    return _LABELS.get(detail["type"]) == detail["loc"][-1] if detail["loc"] else False


def _sentence(path: Path_, tag: str, detail: ErrorDetails) -> str:
    kind = detail["type"]
    context = detail.get("ctx", {})
    given = detail.get("input")
    got = f", got {_shown(given)}"
    leaf = str(path[-1]) if path else ""
    if kind == "extra_forbidden":
        known = sorted(_fields_at(path[:-1]))
        if leaf in known:
            return f"{leaf!r} does not go with {tag!r}"
        return f"unknown key {leaf!r}{_did_you_mean(leaf, known)}"
    if kind == "missing":
        return f"{leaf!r} is required"
    if kind == "union_tag_not_found":
        return f"{context['discriminator']} is required"
    if kind == "union_tag_invalid":
        return f"{context['discriminator']} must be one of {context['expected_tags']}, got {context['tag']!r}"
    if kind in ("source_kind", "contract_kind"):
        return str(detail["msg"]) + got
    if kind == "value_error":
        message = str(context["error"])
        return message if isinstance(given, dict) or _shown(given) in message else message + got
    if _in_plain_union(detail):
        return f"must be text, a whole number, true or false{got}"
    if kind in ("int_type", "int_from_float", "int_parsing"):
        return f"must be a whole number{got}"
    if kind in ("float_type", "float_parsing"):
        return f"must be a number{got}"
    if kind == "finite_number":
        return f"must be finite{got}"
    if kind == "bool_type":
        return f"must be true or false{got}"
    if kind == "string_type":
        return f"must be text{got}"
    if kind == "tuple_type":
        return f"must be a list, such as [a, b]{got}"
    if kind == "literal_error":
        if path == ("task", "metric") and given in BETTER_WHEN_HIGHER:
            kinds = " or ".join(kind for kind, metrics in METRICS.items() if given in metrics)
            return f"{given} needs kind: {kinds}; {tag} has {context['expected']}"
        return f"must be {context['expected']}{got}{_did_you_mean(given, _quoted(context['expected']))}"
    if kind in ("too_short", "string_too_short"):
        return "must not be empty"
    limits = {
        "greater_than": ("gt", "must be > {}"),
        "greater_than_equal": ("ge", "must be at least {}"),
        "less_than": ("lt", "must be < {}"),
        "less_than_equal": ("le", "must be at most {}"),
    }
    if kind in limits:
        key, form = limits[kind]
        return form.format(context[key]) + got
    message = str(detail["msg"])
    return message[0].lower() + message[1:] + got


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)


def _did_you_mean(given: Any, known: typing.Iterable[str]) -> str:
    close = difflib.get_close_matches(str(given), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _fields_at(path: Path_) -> frozenset[str]:
    """The keys a declaration may have at `path`, over all alternatives there."""
    return frozenset(name for model in _models_at(path) for name in model.model_fields)


@functools.lru_cache
def _is_tagged(path: Path_) -> bool:
    """Whether the value at `path` is one of several models, chosen by a tag."""
    fields = [model.model_fields.get(str(path[-1])) for model in _models_at(path[:-1])] if path else []
    return any(len(set(_models_in(field.annotation))) > 1 for field in fields if field)


@functools.lru_cache
def _models_at(path: Path_) -> frozenset[type[BaseModel]]:
    models: set[type[BaseModel]] = {PipelineSpec}
    for part in path:
        following: set[type[BaseModel]] = set()
        for model in models:
            field = model.model_fields.get(str(part))
            following |= set(_models_in(field.annotation)) if field else set()
        # A mapping of names to models (columns) takes one more step, by a name the user chose.
        models = following or models
    return frozenset(models)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is not None:
        for argument in typing.get_args(annotation):
            yield from _models_in(argument)


def _dotted(path: Path_) -> str:
    return ".".join(str(part) for part in (path[1:] if path[:1] == ("attributes",) else path))
