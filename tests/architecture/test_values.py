"""The project's values behave like frozen dataclasses, to their own code and to the functions of dataclasses."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle

import pytest

from ringfence import SandboxConfig, SandboxLimits
from ringfence.outcome import CapHit, Denial, Exited, Usage
from ringfence.values import field, fields, frozen, replace


@frozen
class Point:
    x: int
    y: int = 2
    seen: list[int] = field(default_factory=list, compare=False, repr=False)


@frozen(kw_only=True)
class Named:
    name: str
    size: int = 0

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("negative")


def test_a_value_is_compared_hashed_and_shown_by_its_fields() -> None:
    assert Point(1) == Point(1, 2, [3]) != Point(1, 3)
    assert hash(Point(1)) == hash(Point(1, seen=[4]))
    assert (repr(Point(1)), repr(Named(name="a"))) == ("Point(x=1, y=2)", "Named(name='a', size=0)")
    assert Exited(0) != Usage() and Exited(0) == Exited(0)


def test_a_value_does_not_change() -> None:
    for act in (lambda: setattr(Point(1), "x", 2), lambda: setattr(Point(1), "z", 2), lambda: delattr(Point(1), "x")):
        with pytest.raises(AttributeError):
            act()


def test_each_object_has_defaults_of_its_own_and_is_checked() -> None:
    assert Point(1).seen is not Point(1).seen
    with pytest.raises(ValueError, match="negative"):
        replace(Named(name="a"), size=-1)
    for wrong in (lambda: Named("a"), lambda: Point(), lambda: Point(1, z=2)):  # type: ignore[misc,call-arg]
        with pytest.raises(TypeError):
            wrong()


def test_a_value_is_matched_by_position_where_its_fields_have_an_order() -> None:
    match Point(5, 6):
        case Point(x, y):
            assert (x, y) == (5, 6)
    assert Named.__match_args__ == ()


@pytest.mark.parametrize(
    "made",
    [Point(1, 7, [8]), CapHit("cpu", 1, None, "rlimit"), SandboxLimits(cpu_seconds=3), Denial("read", "/x", "r", "observed")],
)
def test_dataclasses_pickle_and_copy_take_a_value_for_their_own(made: object) -> None:
    assert dataclasses.is_dataclass(made)
    assert [each.name for each in dataclasses.fields(made)] == [each.name for each in fields(made)]
    assert dataclasses.replace(made) == made  # type: ignore[type-var]
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made


def test_a_value_is_a_dict_for_dataclasses() -> None:
    assert dataclasses.asdict(Usage(1.5)) == {each.name: getattr(Usage(1.5), each.name) for each in fields(Usage)}  # type: ignore[call-overload]


def test_a_value_tells_its_signature_before_the_first_is_made() -> None:
    @frozen(kw_only=True)
    class Fresh:
        a: int
        b: str = "x"

    assert str(inspect.signature(Fresh)) == "(*, a: 'int', b: 'str' = 'x') -> None"
    assert "tier" in inspect.signature(SandboxConfig).parameters
