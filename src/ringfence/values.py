"""Values: classes of named fields that do not change once made. What dataclasses makes of them, without what it costs.

dataclass(frozen=True, slots=True) compiles six functions for each class when its module is imported, used or not: with the
modules that this needs it was a third of a cold start of the command line. Here all functions but `__init__` are the same for
every class, and `__init__` is compiled when it is first asked for. The functions of dataclasses take these for their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")

NONE = object()
"""Where a field has no default."""


class Field:
    """One field: its name, its default or what makes it, whether it is shown and compared."""

    __slots__ = ("compare", "default", "default_factory", "kw_only", "name", "repr")

    def __init__(self, default: object, default_factory: Callable[[], object] | None, repr: bool, compare: bool) -> None:
        self.name, self.kw_only = "", False
        self.default, self.default_factory, self.repr, self.compare = default, default_factory, repr, compare


@overload
def field(*, default: T, repr: bool = ..., compare: bool = ...) -> T: ...
@overload
def field(*, default_factory: Callable[[], T], repr: bool = ..., compare: bool = ...) -> T: ...
@overload
def field(*, repr: bool = ..., compare: bool = ...) -> Any: ...
def field(
    *, default: object = NONE, default_factory: Callable[[], object] | None = None, repr: bool = True, compare: bool = True
) -> Any:
    """A field of a value that needs saying more than its default: default_factory makes one for each object."""
    return Field(default, default_factory, repr, compare)


@overload
def frozen(cls: type[T], /) -> type[T]: ...
@overload
def frozen(*, kw_only: bool = ..., caches: bool = ...) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T] | None = None, /, *, kw_only: bool = False, caches: bool = False) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a class of annotated names one of values. What the class defines itself is kept.

    kw_only: its fields have no order. caches: it has properties that are worked out once (functools.cached_property).
    """
    return (lambda each: _made(each, kw_only, caches)) if cls is None else _made(cls, kw_only, caches)


def fields(of: object) -> tuple[Field, ...]:
    """The fields of a value or of its class, in order."""
    found: tuple[Field, ...] = of.__value_fields__  # type: ignore[attr-defined]
    return found


def replace(of: T, **changes: object) -> T:
    """A copy of a value with some fields changed; it is checked as a new one is."""
    for each in fields(of):
        if each.name not in changes:
            changes[each.name] = getattr(of, each.name)
    return type(of)(**changes)


def _made(cls: type[T], kw_only: bool, caches: bool) -> type[T]:
    annotations = cls.__annotations__  # its own: never those of a base
    namespace = dict(cls.__dict__)
    found = [each for base in reversed(cls.__mro__[1:]) for each in base.__dict__.get("__own_fields__", ())]
    own = []
    for name, kind in annotations.items():
        if "ClassVar" in str(kind):
            continue
        given = namespace.pop(name, NONE)
        each = given if isinstance(given, Field) else Field(given, None, True, True)
        each.name, each.kw_only = name, kw_only
        own.append(each)
    for name in ("__dict__", "__weakref__"):
        namespace.pop(name, None)
    namespace["__slots__"] = (*(each.name for each in own), *(("__dict__",) if caches else ()))
    namespace["__own_fields__"] = tuple(own)
    namespace["__value_fields__"] = (*found, *own)
    namespace["__match_args__"] = tuple(each.name for each in (*found, *own) if not each.kw_only)
    for name, shared in _SHARED.items():
        namespace.setdefault(name, shared)
    initial = _Initial()
    namespace.setdefault("__init__", initial)
    if "__eq__" in cls.__dict__ and "__hash__" not in cls.__dict__:
        namespace["__hash__"] = None
    made: type[T] = type(cls)(cls.__name__, cls.__bases__, namespace)  # type: ignore[misc]
    initial.cls = made
    return made


class _Initial:
    """`__init__` of a class until somebody asks for it."""

    cls: type

    def __get__(self, instance: object, owner: type) -> Any:
        function = _initial(self.cls)
        type.__setattr__(self.cls, "__init__", function)
        return function if instance is None else function.__get__(instance, owner)


def _initial(cls: type) -> Any:
    """`__init__`, compiled: it sets the slots by their descriptors, since the class lets nothing be set by name."""
    names: dict[str, object] = {"NONE": NONE}
    parameters: list[str] = []
    lines: list[str] = []
    for at, each in enumerate(fields(cls)):
        default = ""
        if each.default_factory is not None:
            names[f"make{at}"], default = each.default_factory, " = NONE"
            lines.append(f" if {each.name} is NONE: {each.name} = make{at}()")
        elif each.default is not NONE:
            names[f"default{at}"], default = each.default, f" = default{at}"
        names[f"set{at}"] = getattr(cls, each.name).__set__
        parameters.append(("*, " if each.kw_only and "*, " not in "".join(parameters) else "") + each.name + default)
        lines.append(f" set{at}(self, {each.name})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    exec(f"def __init__(self, {', '.join(parameters)}):\n" + "\n".join(lines or [" pass"]), names)
    function: Any = names["__init__"]
    function.__qualname__, function.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    function.__annotations__ = _annotations(cls)
    return function


def _annotations(cls: type) -> dict[str, object]:
    known: dict[str, object] = {}
    for base in reversed(cls.__mro__):
        known.update(base.__annotations__ if base is not object else {})
    return {each.name: known[each.name] for each in fields(cls)} | {"return": None}


def _equal(self: Any, other: object) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return all(getattr(self, each.name) == getattr(other, each.name) for each in fields(self) if each.compare)


def _hash(self: Any) -> int:
    held = (getattr(self, each.name) for each in fields(self) if each.compare)
    return hash(tuple(frozenset(each.items()) if isinstance(each, Mapping) else each for each in held))


def _shown(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_setting(self: object, name: str, given: object) -> None:
    raise _unchangeable(f"{type(self).__name__} does not change once it is made: cannot assign to field {name!r}")


def _refuse_deleting(self: object, name: str) -> None:
    raise _unchangeable(f"{type(self).__name__} does not change once it is made: cannot delete field {name!r}")


def _unchangeable(message: str) -> AttributeError:
    from dataclasses import FrozenInstanceError  # what callers of dataclasses expect, and nothing that runs well needs

    return FrozenInstanceError(message)


def _reduced(self: Any) -> tuple[object, ...]:
    held = {each.name: getattr(self, each.name) for each in fields(self)}
    return _again, (type(self), {name: dict(each) if isinstance(each, Mapping) else each for name, each in held.items()})


def _again(cls: type, held: dict[str, object]) -> object:
    """What was pickled or copied: made, and so checked, anew."""
    return cls(**held)


class _ForDataclasses:
    """What the functions of dataclasses look for, made when they do."""

    def __get__(self, instance: object, owner: type) -> Mapping[str, Any]:
        import dataclasses

        def of(each: Field) -> Any:
            if each.default_factory is not None:
                return dataclasses.field(default_factory=each.default_factory, repr=each.repr, compare=each.compare)
            default = dataclasses.MISSING if each.default is NONE else each.default
            return dataclasses.field(default=default, repr=each.repr, compare=each.compare)

        annotations = _annotations(owner)
        described = [(each.name, annotations[each.name], of(each)) for each in fields(owner)]
        made: Any = dataclasses.make_dataclass(owner.__name__, described, kw_only=True)
        found: Mapping[str, Any] = made.__dataclass_fields__
        return found


_SHARED: Mapping[str, Any] = {
    "__eq__": _equal,
    "__hash__": _hash,
    "__repr__": _shown,
    "__setattr__": _refuse_setting,
    "__delattr__": _refuse_deleting,
    "__reduce__": _reduced,
    "__dataclass_fields__": _ForDataclasses(),
}
