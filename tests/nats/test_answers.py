"""Acks that are made together are those that are made alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.nats.ingress.answers import acks_of
from logboom.nats.link import commands
from logboom.nats.wire.acks import ack


@given(st.lists(st.sampled_from([b"", b"r", b"_INBOX.a%b.1"]), min_size=1, max_size=30), st.integers(0, 10**12))
def test_acks_made_together_are_those_made_alone(replies: list[bytes], first: int) -> None:
    for start in (first, 10 ** len(str(first)) - 3):
        offsets = list(range(start, start + len(replies)))
        alone = [commands.publish(reply, ack("s.1", at)) for reply, at in zip(replies, offsets, strict=True) if reply]
        assert acks_of("s.1", replies, offsets) == b"".join(alone)
        assert acks_of("s.1", replies, range(start, start + len(replies))) == b"".join(alone)


@pytest.mark.parametrize("first", [0, 998, 999, 1_000, 1_998, 99_999, 123_456])
def test_acks_of_offsets_that_follow_each_other(first: int) -> None:
    replies = [b"_INBOX.%d" % place for place in range(2_500)]
    alone = [commands.publish(reply, ack("s", first + place)) for place, reply in enumerate(replies)]
    assert acks_of("s", replies, range(first, first + len(replies))) == b"".join(alone)
