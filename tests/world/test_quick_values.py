"""Frozen dataclasses with a quicker constructor are what they are without it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, replace
from inspect import signature

import pytest

from kraftpy.world import quickly_made


@dataclass(frozen=True, slots=True)
class _Usual:
    name: str
    numbers: tuple[int, ...] = ()
    is_known: bool = False


@quickly_made
@dataclass(frozen=True, slots=True)
class _Quick:
    name: str
    numbers: tuple[int, ...] = ()
    is_known: bool = False


@pytest.mark.parametrize(
    ("places", "names"),
    [
        (("a",), {}),
        (("a", (1, 2)), {}),
        (("a", (1, 2), True), {}),
        (("a",), {"is_known": True}),
        ((), {"is_known": True, "name": "b"}),
    ],
)
def test_it_is_made_of_the_same_arguments(
    places: tuple[object, ...], names: dict[str, object]
) -> None:
    usual, quick = _Usual(*places, **names), _Quick(*places, **names)  # type: ignore[arg-type]
    assert repr(quick) == repr(usual).replace("_Usual", "_Quick")
    assert quick == _Quick(usual.name, usual.numbers, usual.is_known)
    assert hash(quick) == hash(usual)
    assert replace(quick, name="c") == _Quick("c", usual.numbers, usual.is_known)


def test_it_has_the_same_signature() -> None:
    assert signature(_Quick) == signature(_Usual)


@pytest.mark.parametrize("arguments", [(), ("a", (), True, 1)])
def test_wrong_arguments_are_refused(arguments: tuple[object, ...]) -> None:
    with pytest.raises(TypeError, match="__init__"):
        _Quick(*arguments)  # type: ignore[arg-type]


def test_it_stays_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        _Quick("a").name = "b"  # type: ignore[misc]


def test_a_field_that_is_no_plain_one_is_refused() -> None:
    with pytest.raises(TypeError, match="numbers is no plain field"):

        @quickly_made
        @dataclass(frozen=True, slots=True)
        class _Listed:
            numbers: list[int] = field(default_factory=list)


def test_a_class_that_has_more_to_do_is_refused() -> None:
    with pytest.raises(TypeError, match="__post_init__"):

        @quickly_made
        @dataclass(frozen=True, slots=True)
        class _Checked:
            number: int

            def __post_init__(self) -> None:
                """Whatever."""
