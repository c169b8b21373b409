"""The requests that a recorder waits for: in time, within memory."""

from hypothesis import given
from hypothesis import strategies as st

from logboom.nats.recording.pending import Awaited, PendingRequests

LARGE = 1 << 30


def test_replies_find_their_request_until_its_time_is_over() -> None:
    pending = PendingRequests(LARGE, 10)
    pending.add(b"_INBOX.a", b"prices", 100)
    assert pending.find(b"_INBOX.b", 101) is None
    assert pending.find(b"_INBOX.a", 101) == Awaited(b"prices", 100)
    assert pending.find(b"_INBOX.a", 110) == Awaited(b"prices", 100), "a request may have several replies"
    assert pending.find(b"_INBOX.a", 111) is None
    pending.add(b"_INBOX.c", b"prices", 111)
    assert (len(pending), pending.unanswered) == (1, 0)
    pending.expire(200)
    assert (len(pending), pending.unanswered, pending.size_bytes) == (0, 1, 0)


def test_the_oldest_are_forgotten_where_memory_ends() -> None:
    pending = PendingRequests(1_000, 10)
    for number in range(10):
        pending.add(b"_INBOX.%d" % number, b"prices", 0)
        pending.find(b"_INBOX.0", 0)
    assert pending.size_bytes <= 1_000
    assert pending.find(b"_INBOX.9", 1) is not None
    assert pending.find(b"_INBOX.0", 1) is None
    assert len(pending) + pending.forgotten + 1 == 10, "the first had its reply, and is not counted"


@given(
    st.lists(
        st.tuples(st.sampled_from(["ask", "answer"]), st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=60
    )
)
def test_as_a_plain_list_of_requests(steps: list[tuple[str, int, int]]) -> None:
    pending, wait = PendingRequests(LARGE, 6), 6
    now = unanswered = 0
    asked: dict[bytes, tuple[int, bool]] = {}
    for what, which, later in steps:
        now += later
        reply = b"r%d" % which
        if what == "ask":
            unanswered += sum(1 for at, answered in asked.values() if now - at > wait and not answered)
            asked = {name: one for name, one in asked.items() if now - one[0] <= wait}
            asked[reply] = (now, False)
            pending.add(reply, b"s", now)
        else:
            at = asked.get(reply)
            found = pending.find(reply, now)
            assert (found is not None) == (at is not None and now - at[0] <= wait)
            if found is not None and at is not None:
                assert found.arrived_ns == at[0]
                asked[reply] = (at[0], True)
    assert pending.unanswered == unanswered
