"""Acks that are made together are those that are made alone."""

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
