"""What two leaders of a partition make of what both have unstored: a model of a server that gives messages to both."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from logboom.base.ids import Epoch, Offset
from logboom.nats.ingress.holding import Doubt, HeldMessages, Unstored
from logboom.nats.link.frames import Delivery


def unstored(payload: bytes, *, by_all: bool = True, sid: int = 0) -> Unstored:
    return Unstored(Delivery(sid, b"subject", b"", b"", payload), by_all)


def payloads(some: Sequence[Unstored]) -> list[bytes]:
    return [one.message.payload for one in some]


@st.composite
def crossings(draw: st.DrawFn) -> tuple[list[bytes], list[bytes], list[bytes], list[bytes]]:
    """Three stretches of messages, many of them equal: heard by the old leader alone, by both, by the next one alone;
    and the second in another order, in which the next leader has heard it."""
    few = st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=8)
    before, both, behind = draw(few), draw(few), draw(few)
    return before, both, behind, list(draw(st.permutations(both)))


@given(crossings())
def test_each_message_is_kept_once_however_many_are_equal(
    crossing: tuple[list[bytes], list[bytes], list[bytes], list[bytes]],
) -> None:
    before, both, behind, both_there = crossing
    holding = HeldMessages(0)
    for payload in both_there[:2]:
        holding.hold(unstored(payload))  # before it is known what the other one has stored: that one tells
    holding.begin()
    for payload in both_there:
        holding.hold(unstored(payload, sid=7))
    holding.mark()
    for payload in behind:
        holding.hold(unstored(payload, sid=7))
    holding.put_before([unstored(payload) for payload in (*before, *both)])
    assert Counter(payloads(holding.held)) == Counter([*before, *both, *behind])
    assert payloads(holding.held)[len(before) :] == [*both_there, *behind]
    assert holding.size_bytes == sum(one.size_bytes for one in holding.held)


def test_what_a_server_gave_to_one_of_a_queue_is_not_what_it_gave_to_the_other() -> None:
    holding = HeldMessages(0)
    holding.hold(unstored(b"same", by_all=False))
    holding.put_before([unstored(b"same", by_all=False)])
    assert payloads(holding.held) == [b"same", b"same"]


def test_the_next_leaders_log_says_what_became_of_messages_in_doubt() -> None:
    def doubt(payload: bytes, offset: int, epoch: int) -> Doubt:
        return Doubt(unstored(payload), Offset(offset), Epoch(epoch), b"ack of " + payload)

    epochs = [(1, 0), (3, 50), (5, 100)]  # it leads in epoch 5 from offset 100 on
    holding = HeldMessages(0)
    holding.doubts.extend([doubt(b"kept", 99, 3), doubt(b"cut", 100, 3), doubt(b"other", 60, 4)])
    found = holding.resolve(epochs)
    assert (found.acks, found.kept, payloads(found.lost)) == ([b"ack of kept"], 1, [b"cut", b"other"])
    assert not holding.doubts
