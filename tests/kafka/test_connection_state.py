"""The state machine of a connection, without sockets: phases, pauses, and what they allow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.kafka.connection.state import TRANSITIONS, ConnectionState, Event, Pause, Phase

WAY_TO = {
    Phase.OPEN: [],
    Phase.REFUSED: [Event.REFUSE],
    Phase.HALF_CLOSED: [Event.PEER_FINISHED],
    Phase.STOPPING: [Event.SERVER_STOPS],
    Phase.CLOSED: [Event.CLOSE],
}
TURN_PAUSES = (None, Pause.APPEND_CAPACITY, Pause.SERVER_MEMORY, Pause.BACKLOG)


def in_phase(phase: Phase) -> ConnectionState:
    state = ConnectionState()
    for event in WAY_TO[phase]:
        state.handle(event)
    assert state.phase is phase
    return state


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("event", Event)
def test_an_event_leads_where_the_table_says_or_is_a_programming_error(phase: Phase, event: Event) -> None:
    state = in_phase(phase)
    if (phase, event) in TRANSITIONS:
        state.handle(event)
        assert state.phase is TRANSITIONS[phase, event]
    else:
        with pytest.raises(AssertionError, match=f"{event.name} in phase {phase.name}"):
            state.handle(event)
        assert state.phase is phase


def test_a_closed_connection_stays_closed_and_every_other_phase_can_end() -> None:
    assert {target for (phase, _), target in TRANSITIONS.items() if phase is Phase.CLOSED} == {Phase.CLOSED}
    assert all(TRANSITIONS[phase, Event.CLOSE] is Phase.CLOSED for phase in Phase)


@pytest.mark.parametrize(
    ("phase", "reads", "begins"),
    [
        (Phase.OPEN, True, True),
        (Phase.REFUSED, False, False),
        (Phase.HALF_CLOSED, False, True),
        (Phase.STOPPING, False, False),
        (Phase.CLOSED, False, False),
    ],
)
def test_what_a_phase_allows(phase: Phase, reads: bool, begins: bool) -> None:
    state = in_phase(phase)
    assert (state.reads, state.begins, state.closed) == (reads, begins, phase is Phase.CLOSED)


def test_a_peer_that_does_not_read_or_is_throttled_begins_nothing() -> None:
    state = ConnectionState()
    for set_, reason in ((state.set_peer_reads, Pause.UNREAD_REPLIES), (state.set_throttled, Pause.THROTTLED)):
        set_(reason is Pause.THROTTLED)
        assert (state.reads, state.begins, state.pause) == (False, False, reason)
        set_(reason is not Pause.THROTTLED)
        assert (state.reads, state.begins, state.pause) == (True, True, None)


@pytest.mark.parametrize("pause", [Pause.APPEND_CAPACITY, Pause.SERVER_MEMORY, Pause.BACKLOG])
def test_what_a_turn_waits_for_stops_the_socket_and_not_the_requests_that_are_there(pause: Pause) -> None:
    state = ConnectionState()
    state.set_waits_for(pause)
    assert (state.reads, state.begins, state.pause) == (False, True, pause)
    state.set_waits_for(None)
    assert (state.reads, state.begins, state.pause) == (True, True, None)


STEPS = (
    st.tuples(st.just("handle"), st.sampled_from(Event))
    | st.tuples(st.sampled_from(["set_peer_reads", "set_throttled"]), st.booleans())
    | st.tuples(st.just("set_waits_for"), st.sampled_from(TURN_PAUSES))
)


@given(st.lists(STEPS, max_size=30))
def test_the_socket_is_read_exactly_while_nothing_stands_against_it(steps: list[tuple[str, object]]) -> None:
    """However events and pauses follow each other: no order of them leaves a connection paused for ever."""
    state = ConnectionState()
    peer_reads: object = True
    throttled: object = False
    waits_for: object = None
    for name, value in steps:
        if name == "handle" and (state.phase, value) not in TRANSITIONS:
            continue
        getattr(state, name)(value)
        peer_reads = value if name == "set_peer_reads" else peer_reads
        throttled = value if name == "set_throttled" else throttled
        waits_for = value if name == "set_waits_for" else waits_for
        free = bool(peer_reads and not throttled)
        assert state.reads == (state.phase is Phase.OPEN and free and waits_for is None)
        assert state.begins == (state.phase in (Phase.OPEN, Phase.HALF_CLOSED) and free)
        assert state.closed == (state.phase is Phase.CLOSED)
        if state.phase is Phase.OPEN:
            assert (state.pause is None) == state.reads, "whatever pauses an open connection has a name"
