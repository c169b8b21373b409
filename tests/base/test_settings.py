"""Settings: everything that is wrong is told at once, each with its line and, for a key, the nearest known one."""

import contextlib
from typing import Annotated, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, field_validator

from logboom.base.settings import (
    Address,
    DurationMs,
    DurationS,
    Settings,
    SettingsError,
    SizeBytes,
    decode_yaml,
    format_duration_ms,
    format_size_bytes,
    join_address,
    load,
    parse_duration_ms,
    parse_size_bytes,
    parse_yaml,
    split_address,
)
from logboom.base.units import GIB


class Door(Settings):
    port: int = 3
    """Where to listen."""
    keep_ms: DurationMs = 1
    wait_s: DurationS = 1.0
    buffer_bytes: SizeBytes = 10
    listen: Address = "127.0.0.1:0"
    password: str | None = None

    @field_validator("port")
    @classmethod
    def _odd(cls, port: int) -> int:
        if port % 2 == 0:
            raise ValueError("ports are odd here")
        return port


class Left(Settings):
    type: Literal["left"]
    depth: int


class Right(Settings):
    type: Literal["right"]
    right: int = 0


class Whole(Settings):
    name: str
    door: Door = Door()
    doors: tuple[Door, ...] = ()
    sides: dict[str, Annotated[Left | Right, Field(discriminator="type")]] = Field(default_factory=dict)


def problems(text: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(Whole, parse_yaml(text, "f.yaml"))
    return str(caught.value).splitlines()


def test_all_problems_are_reported_at_once_with_their_lines() -> None:
    text = """\
door:
  portt: 4
  port: 4
  keep_ms: 7q
  listen: nowhere
doors:
  - port: 5
  - prot: 5
  - 7
sides:
  one: {type: left, depth: deep, dept: 1}
  two:
    type: right
    right: wrong
  three: {type: rigth}
  four: {type: left}
nonsense: 1
"""
    assert problems(text) == [
        "f.yaml:1: key 'name' is missing",
        "f.yaml:2: door.portt: unknown key 'portt' (did you mean 'port'?)",
        "f.yaml:3: door.port: ports are odd here",
        "f.yaml:4: door.keep_ms: '7q' is not a duration such as 250ms, 30s, 15m, 12h or 7d",
        "f.yaml:5: door.listen: 'nowhere' is not an address such as 127.0.0.1:9092",
        "f.yaml:8: doors[1].prot: unknown key 'prot' (did you mean 'port'?)",
        "f.yaml:9: doors[2]: should be a group of keys and values, got 7",
        "f.yaml:11: sides.one.depth: should be a whole number, got 'deep'",
        "f.yaml:11: sides.one.dept: unknown key 'dept' (did you mean 'depth'?)",
        "f.yaml:14: sides.two.right: should be a whole number, got 'wrong'",
        "f.yaml:15: sides.three: unknown type 'rigth' (did you mean 'right'?)",
        "f.yaml:16: sides.four: key 'depth' is missing",
        "f.yaml:17: nonsense: unknown key 'nonsense' (known here: door, doors, name, sides)",
    ]


def test_problem_of_settings_without_a_document_has_no_line() -> None:
    with pytest.raises(SettingsError) as caught:
        load(Whole, {"name": "x", "door": {"prt": 1}})
    (problem,) = caught.value.problems
    assert (problem.where, problem.line) == ("door.prt", None)


def test_secret_is_not_echoed() -> None:
    (line,) = problems("name: x\ndoor: {password: 12345}\n")
    assert "12345" not in line


def test_number_where_text_is_wanted_says_to_quote_it() -> None:
    assert problems("name: 1.10\n") == ["f.yaml:1: name: should be text (put it in quotes), got 1.1"]


class Texts(Settings):
    short: Annotated[str, Field(min_length=1)] = "x"
    long: Annotated[str, Field(max_length=3)] = "x"
    named: Annotated[str, Field(pattern="^[a-z]+$")] = "x"


def test_texts_of_another_length_or_form_are_told_in_plain_words() -> None:
    with pytest.raises(SettingsError) as caught:
        load(Texts, {"short": "", "long": "abcd", "named": "A"})
    assert [problem.message for problem in caught.value.problems] == [
        "should not be empty, got ''",
        "should have at most 3 characters, got 'abcd'",
        "should be of the form ^[a-z]+$, got 'A'",
    ]


def test_group_with_nothing_behind_it_is_left_at_its_defaults() -> None:
    assert load(Whole, parse_yaml("name: x\ndoor:\n", "f.yaml")) == Whole(name="x")


def test_units_and_bare_numbers_are_read() -> None:
    door = load(Door, parse_yaml("{keep_ms: 7d, wait_s: 250ms, buffer_bytes: 1GiB}", "f.yaml"))
    assert (door.keep_ms, door.wait_s, door.buffer_bytes) == (604_800_000, 0.25, 2**30)
    assert load(Door, {"keep_ms": 5, "wait_s": "1.5"}) == Door(keep_ms=5, wait_s=1.5)


def test_negative_quantities_are_refused() -> None:
    with pytest.raises(SettingsError) as caught:
        load(Door, {"keep_ms": -1, "wait_s": -1, "buffer_bytes": -1})
    assert len(caught.value.problems) == 3


class Bounded(Settings):
    every: Annotated[DurationMs, Field(ge=1_000, le=86_400_000)] = 1_000
    pause: Annotated[DurationS, Field(gt=0.1)] | None = None
    room: Annotated[SizeBytes, Field(lt=GIB)] = 1
    rate: float | None = None
    switch: bool | int = 0


def test_bounds_of_quantities_are_told_in_their_units_and_true_is_no_number() -> None:
    with pytest.raises(SettingsError) as caught:
        load(Bounded, {"every": 0, "pause": "50ms", "room": "2GiB", "rate": True, "switch": True})
    assert sorted(f"{problem.where}: {problem.message}" for problem in caught.value.problems) == [
        "every: should be at least 1s, got 0",
        "pause: should be more than 100ms, got '50ms'",
        "rate: should be a number, got true",
        "room: should be less than 1GiB, got '2GiB'",
    ]


@given(st.integers(0, 10**15))
def test_duration_and_size_survive_writing_and_reading(amount: int) -> None:
    assert parse_duration_ms(format_duration_ms(amount)) == amount
    assert parse_size_bytes(format_size_bytes(amount)) == amount


@pytest.mark.parametrize("text", ["", " ", "d", "1x", "1h30", "-1s", "1e3s", "9" * 400, f"1.{'9' * 99}s"])
def test_text_that_is_no_duration_raises_value_error_and_nothing_else(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration_ms(text)


def test_duration_of_several_units_is_their_sum() -> None:
    assert parse_duration_ms("1h 30m") == parse_duration_ms("1.5h") == 5_400_000


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 9092), ("::1", 0), ("", 65_535), ("db.example", 1)])
def test_address_survives_writing_and_reading(host: str, port: int) -> None:
    assert split_address(join_address(host, port)) == (host, port)


@pytest.mark.parametrize("address", ["", "9092", "a:", "a:b", "::1:9092", "a:65536", "a:99999999999", "a:-1", "a:٣"])
def test_text_that_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        split_address(address)


@settings(max_examples=200)
@given(st.text())
def test_any_text_gives_settings_or_settings_error(text: str) -> None:
    with contextlib.suppress(SettingsError):
        assert isinstance(load(Whole, parse_yaml(text, "f.yaml")), Whole)


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"a: 1\nb: caf\xe9\n", "f.yaml:2: byte 7 of this line (0xe9) is not UTF-8; save the file as UTF-8"),
        (b"\xff\xfea\x00", "f.yaml:1: the file is UTF-16; save it as UTF-8"),
        (b"\x80", "f.yaml:1: byte 1 of this line (0x80) is not UTF-8; save the file as UTF-8"),
    ],
)
def test_bytes_that_are_no_utf_8_are_reported_with_their_place(raw: bytes, told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        decode_yaml(raw, "f.yaml")
    assert str(caught.value) == told


def test_a_byte_order_mark_of_utf_8_is_no_part_of_the_text() -> None:
    assert decode_yaml(b"\xef\xbb\xbfa: 1", "f.yaml") == "a: 1"
