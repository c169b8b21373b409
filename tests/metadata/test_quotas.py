"""Quotas of clients as commands, records and image."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.base.errors import InvalidRequestError, PolicyViolationError
from logboom.metadata import Image, MetadataLimits, apply, change_quotas, decode, encode, quota_entity

LIMITS = MetadataLimits(partitions_max=100, streams_max=100, quotas_max=3)
ORDERS = quota_entity([("client-id", "orders")])
DEFAULT = quota_entity([("client-id", None)])


def changed(image: Image, entity: tuple[tuple[str, str | None], ...], **changes: float | None) -> Image:
    for record in change_quotas(image.quotas, entity, changes, LIMITS):
        image = apply(image, decode(encode(record)))
    return image


def test_a_quota_is_set_changed_and_removed() -> None:
    image = changed(Image(), ORDERS, producer_byte_rate=1_000.0, request_percentage=12.5)
    image = changed(image, DEFAULT, producer_byte_rate=10.0)
    assert image.quotas[ORDERS] == {"producer_byte_rate": 1_000, "request_percentage": 12.5}
    image = changed(image, ORDERS, producer_byte_rate=2_000.0, request_percentage=None)
    assert dict(image.quotas) == {ORDERS: {"producer_byte_rate": 2_000}, DEFAULT: {"producer_byte_rate": 10}}
    image = changed(image, ORDERS, producer_byte_rate=None)
    assert list(image.quotas) == [DEFAULT], "nobody is here without a quota"


def test_what_changes_nothing_leaves_no_record() -> None:
    image = changed(Image(), ORDERS, producer_byte_rate=1_000.0)
    assert (
        change_quotas(image.quotas, ORDERS, {"producer_byte_rate": 1_000.0, "consumer_byte_rate": None}, LIMITS) == ()
    )


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([], "names no entity"),
        ([("user", "ann")], "knows no users yet"),
        ([("client-id", "a"), ("user", "ann")], "knows no users yet"),
        ([("client-id", "a"), ("ip", "10.0.0.1")], "one client-id or for one ip"),
        ([("host", "a")], "not a type of entity"),
        ([("client-id", "")], "is empty"),
        ([("client-id", "x" * 2_000)], "at most 1024"),
    ],
)
def test_entities_that_cannot_have_a_quota(parts: list[tuple[str, str | None]], why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        quota_entity(parts)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("producer_byte_rate", 0.0),
        ("producer_byte_rate", 1.5),
        ("consumer_byte_rate", -1.0),
        ("consumer_byte_rate", math.nan),
        ("producer_byte_rate", math.inf),
        ("request_percentage", 0.0),
        ("connection_creation_rate", 5.0),
        ("controller_mutation_rate", 5.0),
    ],
)
def test_quotas_that_cannot_be_set(name: str, value: float) -> None:
    with pytest.raises(InvalidRequestError, match=name):
        change_quotas({}, ORDERS, {name: value}, LIMITS)


def test_an_address_has_its_own_kind_of_quota() -> None:
    address = quota_entity([("ip", "10.0.0.1")])
    assert changed(Image(), address, connection_creation_rate=5.0).quotas[address] == {"connection_creation_rate": 5}
    with pytest.raises(InvalidRequestError, match="no quota for ip"):
        change_quotas({}, address, {"producer_byte_rate": 5.0}, LIMITS)


def test_the_number_of_quotas_is_limited() -> None:
    image = Image()
    for name in "abc":
        image = changed(image, quota_entity([("client-id", name)]), producer_byte_rate=1.0)
    with pytest.raises(PolicyViolationError, match="max_quotas is 3"):
        changed(image, ORDERS, producer_byte_rate=1.0)
    assert changed(image, quota_entity([("client-id", "a")]), producer_byte_rate=2.0), "those there are may change"


_CHANGES = st.dictionaries(
    st.sampled_from(["producer_byte_rate", "consumer_byte_rate", "request_percentage"]),
    st.none() | st.integers(1, 10**9).map(float),
)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), _CHANGES), max_size=12))
@settings(max_examples=60)
def test_the_image_is_what_the_records_say(steps: list[tuple[str | None, dict[str, float | None]]]) -> None:
    model: dict[str | None, dict[str, float]] = {}
    image = Image()
    for name, changes in steps:
        image = changed(image, quota_entity([("client-id", name)]), **changes)
        mine = {**model.get(name, {}), **changes}
        model[name] = {key: value for key, value in mine.items() if value is not None}
    assert {entity[0][1]: dict(values) for entity, values in image.quotas.items()} == {
        name: values for name, values in model.items() if values
    }
