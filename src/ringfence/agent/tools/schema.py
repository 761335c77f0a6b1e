"""The JSON schema of a function's parameters, and arguments held against it.

Both come from one msgspec structure, so that what a model is told is what is checked. Values are not converted: "5" is no number.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ringfence.for_model import plain

MOST_ARGUMENTS = 64 << 20
"""Bytes of arguments as JSON text: a file that is written is at most 32 MiB, and escapes take room."""
MOST_SAID = 300


class BadArgumentsError(ValueError):
    """The model's arguments are not what the tool takes; the text says what is wrong, for the model."""


class Signature:
    """The parameters of a function, as a structure. Raises TypeError for a function whose parameters have no schema."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._structure = msgspec.defstruct("Arguments", _fields(name, function), kw_only=True, forbid_unknown_fields=True)
        try:
            schemas, definitions = msgspec.json.schema_components([self._structure], ref_template="#/$defs/{name}")
        except TypeError as error:
            raise TypeError(f"the parameters of tool {name!r} have no JSON schema: {error}") from None
        schema = dict(definitions.pop("Arguments") if "Arguments" in definitions else schemas[0])
        schema.pop("title", None)
        schema["additionalProperties"] = False
        self.schema: Mapping[str, Any] = {**schema, "$defs": definitions} if definitions else schema

    def checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function takes them, without those that were not given. Raises BadArgumentsError."""
        try:
            made = msgspec.convert(arguments, self._structure)
        except (msgspec.ValidationError, RecursionError) as error:
            raise BadArgumentsError(_readable(str(error))) from None
        return {name: getattr(made, name) for name in self._structure.__struct_fields__ if name in arguments}


def parsed(arguments: Mapping[str, Any] | str) -> Mapping[str, Any]:
    """The arguments as a mapping. Models give them as JSON text, and nothing for none. Raises BadArgumentsError."""
    if isinstance(arguments, str):
        if len(arguments) > MOST_ARGUMENTS:
            raise BadArgumentsError(f"they are longer than {MOST_ARGUMENTS} characters")
        try:
            arguments = msgspec.json.decode(arguments) if arguments.strip() else {}
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
            raise BadArgumentsError(f"they are not JSON: {plain(str(error), MOST_SAID)}") from None
    elif isinstance(arguments, Mapping):
        try:
            size = len(msgspec.json.encode(arguments))
        except (TypeError, ValueError, RecursionError) as error:  # also characters that no text on the wire has, as "\ud800"
            raise BadArgumentsError(f"they cannot be written as JSON: {plain(str(error), MOST_SAID)}") from None
        if size > MOST_ARGUMENTS:
            raise BadArgumentsError(f"they are longer than {MOST_ARGUMENTS} bytes")
    if not isinstance(arguments, Mapping) or not all(isinstance(name, str) for name in arguments):
        raise BadArgumentsError(f"they must be an object with the names of the parameters, not {type(arguments).__name__}")
    return arguments


def _fields(name: str, function: Callable[..., Any]) -> list[tuple[str, Any] | tuple[str, Any, Any]]:
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(f"an annotation of tool {name!r} cannot be read: {error}. Give it a type of its module.") from None
    found: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"tool {name!r} has the parameter {parameter}: a model gives arguments by name, each with a schema.")
        kind = hints.get(parameter.name, Any)
        default = parameter.default
        if default is parameter.empty:
            found.append((parameter.name, kind))
        elif default is None or isinstance(default, (str, int, float)):
            found.append((parameter.name, kind, default))
        else:  # never used, for what was not given is not passed on; one that can be changed may be no default of a structure
            found.append((parameter.name, kind, msgspec.field(default_factory=lambda: None)))
    return found


def _readable(said: str) -> str:
    """msgspec's words without its mark for the top of the object."""
    return plain(said.replace(" - at `$.", " for `").replace(" - at `$`", ""), MOST_SAID)
