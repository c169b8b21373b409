"""What two leaders of a partition make of what both have unstored: a model of a server that gives messages to both."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.base.ids import Epoch, Offset
from logboom.nats.ingress.holding import Doubt, HeldMessages, Unstored
from logboom.nats.ingress.refusals import REFUSALS_MAX, REMEMBERED_S, Refusals, digest
from logboom.nats.link.frames import Delivery

STORED = [(4, 0)]
"""Epochs of a log in which others have stored something."""


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
    holding.take_over([unstored(payload) for payload in (*before, *both)], STORED, 5)
    assert Counter(payloads(holding.held)) == Counter([*before, *both, *behind])
    assert payloads(holding.held)[len(before) :] == [*both_there, *behind]
    assert holding.size_bytes == sum(one.size_bytes for one in holding.held)


def test_what_a_server_gave_to_one_of_a_queue_is_not_what_it_gave_to_the_other() -> None:
    holding = HeldMessages(0)
    holding.hold(unstored(b"same", by_all=False))
    holding.begin()
    assert holding.take_over([unstored(b"same", by_all=False)], STORED, 5) == ()
    assert payloads(holding.held) == [b"same", b"same"]


def kept(own: int) -> HeldMessages:
    """What a broker that led in epoch 3 has held since, now that it leads again: so many messages that came before
    that, one of a queue, and one that has come since."""
    holding = HeldMessages(0)
    holding.publish(3)
    for number in range(own):
        holding.hold(unstored(b"%d" % number))
    holding.hold(unstored(b"queue", by_all=False))
    holding.begin()
    holding.hold(unstored(b"new"))
    return holding


def test_what_other_leaders_may_have_stored_is_not_stored_again_where_they_do_not_tell() -> None:
    """A leader that got no answer has gone on, and is gone, or does not answer either."""
    holding = kept(2)
    gone = holding.take_over(None, [(3, 0), (4, 100), (5, 200)], 5)
    assert (payloads(gone), payloads(holding.held)) == ([b"0", b"1"], [b"queue", b"new"])
    assert holding.size_bytes == sum(one.size_bytes for one in holding.held)


def test_what_nobody_can_have_stored_is_kept() -> None:
    """Another broker led and has stored nothing that is left: this one asked, or led again, before that."""
    for others in (None, [unstored(b"1"), unstored(b"other", by_all=False)]):
        holding = kept(2)
        assert holding.take_over(others, [(3, 0), (5, 100)], 5) == ()
        assert payloads(holding.held) == [*([b"other"] if others else []), b"0", b"1", b"queue", b"new"]
        assert holding.size_bytes == sum(one.size_bytes for one in holding.held)


def test_where_to_look_for_what_others_have_stored() -> None:
    """From the first epoch in between up to where this broker leads again; nowhere if nothing hangs on it."""
    epochs = [(3, 0), (4, 100), (5, 150), (6, 200)]
    holding = kept(2)
    assert holding.written_by_others(epochs, 6) == (100, 200)
    assert holding.written_by_others([(3, 0), (6, 200)], 6) is None
    assert holding.without_others(epochs, 6) == [(3, 0), (6, 200)]
    assert holding.take_over(None, holding.without_others(epochs, 6), 6) == ()
    assert payloads(holding.held) == [b"0", b"1", b"queue", b"new"]
    first = HeldMessages(0)
    first.hold(unstored(b"0"))
    first.begin()
    assert first.written_by_others(epochs, 6) is None, "it has not led"


def test_what_was_taken_over_in_a_leadership_that_is_over_is_kept_for_the_next_one() -> None:
    holding = HeldMessages(0)
    holding.begin()
    holding.take_over([unstored(b"theirs")], [(3, 0), (4, 100)], 5)
    holding.begin()
    holding.hold(unstored(b"new"))
    assert holding.take_over(None, [(3, 0), (4, 100), (7, 100)], 7) == ()
    assert payloads(holding.held) == [b"theirs", b"new"]


def test_what_a_lost_connection_has_left_out_comes_before_what_came_behind_it() -> None:
    holding = HeldMessages(0)
    holding.begin()
    for payload in (b"2", b"3"):
        holding.hold(unstored(payload))
    holding.missed()
    for payload in (b"6", b"new"):
        holding.hold(unstored(payload))
    holding.take_over([unstored(payload) for payload in (b"1", b"2", b"3", b"4", b"5", b"6")], STORED, 5)
    assert payloads(holding.held) == [b"1", b"2", b"3", b"4", b"5", b"6", b"new"]
    assert holding.size_bytes == sum(one.size_bytes for one in holding.held)


@pytest.mark.parametrize("is_lost", [False, True])
def test_what_came_before_this_broker_was_subscribed_comes_before_all_that_it_has_heard(is_lost: bool) -> None:
    """Two servers bring the publishers `p` and `q` in another order to each of the leaders. What the next leader has
    heard before its question says what the other's messages stand before, too, where a connection was lost."""
    holding = HeldMessages(0)
    for payload in (b"p2", b"stored", b"q1"):
        holding.hold(unstored(payload))
    holding.begin()
    if is_lost:
        holding.missed()
    for payload in (b"p3", b"p4", b"q2"):
        holding.hold(unstored(payload))
    gone = holding.take_over([unstored(payload) for payload in (b"q1", b"p1", b"p2", b"q2")], STORED, 5)
    assert gone == ()
    assert payloads(holding.held) == [b"p1", b"p2", b"q1", b"p3", b"p4", b"q2"]
    assert holding.size_bytes == sum(one.size_bytes for one in holding.held)


def test_what_both_have_heard_last_is_no_place_for_what_came_before_this_broker_was_subscribed() -> None:
    holding = HeldMessages(0)
    holding.begin()
    for payload in (b"p2", b"q1"):
        holding.hold(unstored(payload))
    holding.take_over([unstored(payload) for payload in (b"q1", b"p1")], STORED, 5)
    assert payloads(holding.held) == [b"p1", b"p2", b"q1"]


def test_a_mark_of_an_earlier_question_says_nothing_about_the_next_one() -> None:
    holding = HeldMessages(0)
    holding.mark()
    holding.begin()
    holding.hold(unstored(b"both"))
    holding.take_over([unstored(b"both")], STORED, 5)
    assert payloads(holding.held) == [b"both"]


@given(st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=6), st.data())
def test_what_the_leader_before_has_refused_is_not_kept_and_what_came_again_is(
    heard: list[bytes], data: st.DataObject
) -> None:
    """That one has refused the first of them, and held the others."""
    refused = data.draw(st.integers(0, len(heard)))
    holding = HeldMessages(0)
    holding.begin()
    for payload in heard:
        holding.hold(unstored(payload))
    holding.mark()
    holding.hold(unstored(b"a"))  # which that one has not heard
    told = [digest(unstored(payload).message[1:]) for payload in heard[:refused]]
    assert holding.take_over([unstored(payload) for payload in heard[refused:]], STORED, 5, told) == ()
    assert payloads(holding.held) == [*heard[refused:], b"a"]
    assert holding.size_bytes == sum(one.size_bytes for one in holding.held)


def test_refusals_are_remembered_for_a_while_and_so_many() -> None:
    def message(payload: bytes) -> Delivery:
        return unstored(payload).message

    refusals = Refusals()
    refusals.note("orders", 0, [message(b"a"), message(b"a")], 10.0)
    refusals.note("orders", 1, [message(b"b")], 10.0)
    refusals.note("others", 0, [message(b"c")], 11.0)
    a = digest(message(b"a")[1:])
    assert refusals.of("orders", 0, 10.0 + REMEMBERED_S) == [a, a]
    assert refusals.of("orders", 0, 10.5 + REMEMBERED_S) == []
    assert len(refusals.of("others", 0, 10.5 + REMEMBERED_S)) == 1
    refusals.note("orders", 1, [message(b"d")] * (2 * REFUSALS_MAX), 12.0)
    assert refusals.of("others", 0, 12.0) == []
    assert len(refusals.of("orders", 1, 12.0)) == REFUSALS_MAX


def test_the_next_leaders_log_says_what_became_of_messages_in_doubt() -> None:
    def doubt(payload: bytes, offset: int, epoch: int) -> Doubt:
        return Doubt(unstored(payload), Offset(offset), Epoch(epoch), b"ack of " + payload)

    epochs = [(1, 0), (3, 50), (5, 100)]  # it leads in epoch 5 from offset 100 on
    holding = HeldMessages(0)
    holding.doubts.extend([doubt(b"kept", 99, 3), doubt(b"cut", 100, 3), doubt(b"other", 60, 4)])
    found = holding.resolve(epochs)
    assert (found.acks, found.kept, payloads(found.lost)) == ([b"ack of kept"], 1, [b"cut", b"other"])
    assert not holding.doubts
