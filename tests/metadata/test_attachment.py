"""The settings `logboom.nats.*` of a stream: what they take, and what they mean together."""

import pytest

from logboom.base.errors import InvalidConfigError
from logboom.metadata import stream_setting
from logboom.metadata.attachment import (
    AckWhen,
    KeySource,
    PartitionerChoice,
    PartitionerKind,
    attachment_fault,
    is_attached,
    read_key,
    read_partitioner,
)


def parsed(name: str, text: str) -> object:
    return stream_setting(f"logboom.nats.{name}").parse(text)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("subjects", "", ""),
        ("subjects", " orders.> , bills.* ", "orders.>,bills.*"),
        ("subjects", "a.{partition}.b", "a.{partition}.b"),
        ("group", " audit ", "audit"),
        ("group", "", ""),
        ("ack", "leader", AckWhen.LEADER),
        ("key", "token:12", "token:12"),
        ("key", "subject", "subject"),
        ("partitioner", "range:2:g:n", "range:2:g:n"),
        ("duplicate.window.ms", "0", 0),
    ],
)
def test_values_that_are_taken(name: str, text: str, value: object) -> None:
    assert parsed(name, text) == value


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("subjects", "a,,b", "'' is empty"),
        ("subjects", "a.>.b", "'a.>.b' has '>' before its last token"),
        ("subjects", "a b", "'a b' has a blank"),
        ("subjects", "a.x{partition}", "it stands alone between dots"),
        ("subjects", "{partition}.{partition}", "more than once"),
        ("subjects", "orders.*,orders.eu", "'orders.\\*' and 'orders.eu' would store a message twice"),
        ("subjects", "a.{partition},a.b", "would store a message twice"),
        ("subjects", ",".join(f"s{n}" for n in range(101)), "up to 100 subjects"),
        ("group", "two words", "without blanks"),
        ("group", "x" * 201, "up to 200"),
        ("ack", "all", "commit or leader or none"),
        ("key", "token:0", "from 1 to 32"),
        ("key", "token:33", "from 1 to 32"),
        ("key", "header:1", "none, header"),
        ("partitioner", "token", "token:N"),
        ("partitioner", "token:1+", "token:N"),
        ("partitioner", "key:1", "token:N"),
        ("partitioner", "range:1:b:a", "rising bounds"),
        ("partitioner", "range:1:a:a", "rising bounds"),
        ("partitioner", "range:x:a", "rising bounds"),
        ("partitioner", "hash", "round_robin"),
    ],
)
def test_values_that_are_refused_with_a_sentence(name: str, text: str, why: str) -> None:
    with pytest.raises(InvalidConfigError, match=why):
        parsed(name, text)


def test_what_the_values_mean() -> None:
    assert read_key("token:3") == KeySource("token", 3)
    assert read_key("header") == KeySource("header")
    assert read_partitioner("token:1+3") == PartitionerChoice(PartitionerKind.TOKEN, (1, 3))
    assert read_partitioner("range:key:m") == PartitionerChoice(PartitionerKind.RANGE, (), ("m",))
    assert read_partitioner("range:2:g:n") == PartitionerChoice(PartitionerKind.RANGE, (2,), ("g", "n"))


@pytest.mark.parametrize(
    ("settings", "partitions", "why"),
    [
        ({"subjects": "orders.>"}, 1, None),
        ({"group": "audit"}, 3, None),
        ({"subjects": "orders.>", "group": "audit"}, 1, None),
        ({"subjects": "orders.>", "group": "audit"}, 3, "logboom.nats.group is set"),
        ({"subjects": "orders.>", "group": "audit", "partitioner": "round_robin"}, 3, None),
        ({"subjects": "orders.{partition}", "group": "audit"}, 3, None),
        ({"subjects": "orders.{partition},bills", "group": "audit"}, 3, "in 'bills'"),
        ({"subjects": "orders", "partitioner": "range:key:g:n"}, 3, None),
        ({"subjects": "orders", "partitioner": "range:key:g:n"}, 2, "2 bounds, which is for 3 partitions"),
        ({"subjects": ">"}, 1, "that others answer"),
        ({"subjects": ">", "ack": "none"}, 1, None),
        ({"subjects": "*.created"}, 1, "'\\$JS.>'"),
        ({"subjects": "_INBOX.>"}, 1, "'_INBOX.>'"),
        ({"subjects": "$JS.EVENT.ADVISORY.>,$SYS.ACCOUNT.*.CONNECT"}, 1, None),
        ({"subjects": "$JS.API.>"}, 1, "'\\$JS.>'"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, str], partitions: int, why: str | None) -> None:
    fault = attachment_fault({f"logboom.nats.{name}": value for name, value in settings.items()}, partitions)
    if why is None:
        assert fault is None
    else:
        with pytest.raises(InvalidConfigError, match=why):
            raise InvalidConfigError(fault)


def test_a_stream_is_attached_while_it_has_subjects() -> None:
    assert is_attached({"logboom.nats.subjects": "orders"})
    assert not is_attached({"logboom.nats.subjects": " "})
    assert not is_attached({})
