"""Nobody without the key gets through a handshake, whatever of others' handshakes is changed, repeated or sent on."""

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.peer.servers import CLUSTER, KEY, identity

from logboom.base.errors import DuplicateBrokerError
from logboom.broker.misdirected_peer import clients_only
from logboom.broker.peers import Address, Lane, PeerIdentity
from logboom.peer.handshake import (
    ANY_BROKER,
    MESSAGE_BYTES_MAX,
    NO_PROCESSES,
    DiallerHandshake,
    HandshakeError,
    Introduction,
    ListenerHandshake,
    Processes,
    Session,
    _framed,
    _mac,
    check_introduction,
)

OTHER_KEY = bytes(32)
NONCES = [bytes([n]) * 32 for n in range(10)]


def introduction(broker_id: int, cluster_id: str = CLUSTER, directory_id: str = "") -> Introduction:
    return Introduction(identity(broker_id, cluster_id, directory_id), Address(f"host-{broker_id}", 9000 + broker_id))


def dialler(
    own: Introduction | None = None,
    *,
    key: bytes = KEY,
    nonce: int = 1,
    expected: int = 2,
    lane: Lane = Lane.RECORDS,
    processes: Processes = NO_PROCESSES,
) -> DiallerHandshake:
    return DiallerHandshake(key, own or introduction(1), NONCES[nonce], lane, identity(expected).broker_id, processes)


def listener(
    own: Introduction | None = None, *keys: bytes, nonce: int = 2, processes: Processes = NO_PROCESSES
) -> ListenerHandshake:
    return ListenerHandshake(keys or (KEY,), lambda: own or introduction(2), NONCES[nonce], lambda: processes)


def shaken(one: DiallerHandshake, two: ListenerHandshake) -> tuple[Session, Session]:
    """Both sessions. Raises HandshakeError."""
    answer = two.received(one.received(two.received(one.start())))
    if answer:
        assert one.session is two.session is None, "neither says anything else before both have compared"
        answer = two.received(one.received(answer))
    assert answer == b""
    assert one.session is not None
    assert two.session is not None
    return one.session, two.session


def known(registered: dict[int, str] | None = None, *, noted: tuple[str, ...] = ()) -> Processes:
    """What a broker knows of the processes of others, and which of its own its directory has noted."""

    def check_noted(process: str) -> None:
        if process not in noted:
            raise DuplicateBrokerError(f"older than {process}")

    return Processes(lambda peer: (registered or {}).get(peer.broker_id, ""), check_noted)


def test_both_sides_learn_who_the_other_is_and_have_the_same_keys() -> None:
    one, two = shaken(dialler(), listener())
    assert one.other == introduction(2)
    assert two.other == introduction(1)
    assert one.lane is two.lane is Lane.RECORDS
    assert one.send_key == two.receive_key
    assert one.receive_key == two.send_key
    assert len({one.send_key, one.receive_key, KEY}) == 3


def test_keys_are_of_one_connection() -> None:
    keys = {
        key
        for one, two in ((1, 2), (3, 2), (1, 3))
        for session in shaken(dialler(nonce=one), listener(nonce=two))
        for key in (session.send_key, session.receive_key)
    }
    assert len(keys) == 6


@given(cuts=st.lists(st.integers(1, 80), min_size=1, max_size=20), behind=st.binary(max_size=50))
def test_messages_may_come_in_any_pieces_and_frames_behind_the_last(cuts: list[int], behind: bytes) -> None:
    one, two = dialler(), listener()

    def pieces(data: bytes) -> list[bytes]:
        found, position = [], 0
        for cut in cuts * len(data):
            if position >= len(data):
                break
            found.append(data[position : position + cut])
            position += cut
        return found

    answer = b"".join(two.received(piece) for piece in pieces(one.start()))
    proof = b"".join(one.received(piece) for piece in pieces(answer))
    knows = b"".join(two.received(piece) for piece in pieces(proof))
    end = b"".join(one.received(piece) for piece in pieces(knows))
    for piece in pieces(end)[:-1]:
        assert two.received(piece) == b""
    assert two.received(pieces(end)[-1] + behind) == b""
    assert one.session is not None
    assert two.session is not None
    assert two.rest() == behind


def test_another_key_is_told_by_the_dialler_and_not_taken_by_the_listener() -> None:
    with pytest.raises(HandshakeError, match=r"need the same peer\.key_file"):
        shaken(dialler(key=OTHER_KEY), listener())
    # Nor does it help to leave the listener's proof unchecked: a proof under another key is none.
    one, two = dialler(key=OTHER_KEY), listener()
    answer = two.received(one.start())
    proof = _framed(_mac(OTHER_KEY, "proof of the dialler", one.start()[2:], answer[2:]))
    with pytest.raises(HandshakeError, match="has not proven"):
        two.received(proof)
    assert two.session is None


@given(data=st.data())
def test_a_changed_byte_anywhere_ends_it(data: st.DataObject) -> None:
    processes = known({1: "first", 2: "second"}, noted=("first", "second"))
    one, two = dialler(processes=processes), listener(processes=processes)
    which = data.draw(st.sampled_from(["hello", "answer", "proof", "knows", "end"]))

    def on_the_way(name: str, message: bytes) -> bytes:
        if name != which:
            return message
        # The two bytes of length are not said, only how long it is.
        at = data.draw(st.integers(2, len(message) - 1))
        return message[:at] + bytes([message[at] ^ data.draw(st.integers(1, 255))]) + message[at + 1 :]

    def shake() -> None:
        answer = two.received(on_the_way("hello", one.start()))
        proof = one.received(on_the_way("answer", answer))
        knows = two.received(on_the_way("proof", proof))
        two.received(on_the_way("end", one.received(on_the_way("knows", knows))))

    with pytest.raises(HandshakeError):
        shake()
    assert two.session is None


def test_a_recorded_handshake_is_worth_nothing() -> None:
    one, two = dialler(), listener()
    hello = one.start()
    answer = two.received(hello)
    proof = one.received(answer)
    again = listener(nonce=5)
    again.received(hello)
    with pytest.raises(HandshakeError, match="has not proven"):
        again.received(proof)
    with pytest.raises(HandshakeError):
        dialler(nonce=6).received(answer)


def test_a_sides_own_words_are_no_proof() -> None:
    """Whoever has no key gives a broker back what it has said itself."""
    one = dialler()
    with pytest.raises(HandshakeError):
        one.received(one.start())
    two = listener()
    answer = two.received(dialler().start())
    with pytest.raises(HandshakeError, match="has not proven"):
        two.received(_framed(answer[-32:]))


@pytest.mark.parametrize(
    ("dials", "listens"),
    [
        ((KEY,), (KEY, OTHER_KEY)),  # the new key is put behind the old one, one broker after the other
        ((KEY, OTHER_KEY), (KEY,)),
        ((KEY, OTHER_KEY), (OTHER_KEY, KEY)),  # then before it
        ((OTHER_KEY, KEY), (KEY, OTHER_KEY)),
        ((OTHER_KEY, KEY), (OTHER_KEY,)),  # then the old one is removed
        ((OTHER_KEY,), (OTHER_KEY, KEY)),
    ],
)
def test_a_key_is_replaced_one_broker_after_the_other(dials: tuple[bytes, ...], listens: tuple[bytes, ...]) -> None:
    dialled, accepted = shaken(dialler(key=dials[0]), listener(None, *listens))
    assert (dialled.other, accepted.other) == (introduction(2), introduction(1))


def test_a_key_that_only_the_other_side_uses_is_refused() -> None:
    with pytest.raises(HandshakeError, match=r"need the same peer\.key_file"):
        shaken(dialler(key=bytes([7]) * 32), listener(None, KEY, OTHER_KEY))


def test_a_dialler_sent_on_to_another_broker_notices() -> None:
    with pytest.raises(HandshakeError, match="broker 3 listens there, and not broker 2"):
        shaken(dialler(), listener(introduction(3)))
    assert shaken(dialler(expected=ANY_BROKER), listener(introduction(3)))[0].other == introduction(3)
    with pytest.raises(HandshakeError, match="address of broker 1 itself"):
        shaken(dialler(expected=ANY_BROKER), listener(introduction(1)))


def test_a_broker_of_no_cluster_yet_learns_the_clusters_id_and_one_of_another_is_refused() -> None:
    new, old = shaken(dialler(introduction(1, "")), listener())
    assert new.other.identity.cluster_id == CLUSTER
    assert old.other.identity.cluster_id == ""
    shaken(dialler(), listener(introduction(2, "")))
    shaken(dialler(introduction(1, "")), listener(introduction(2, "")))
    with pytest.raises(HandshakeError, match=r"broker 2 belongs to cluster other .*broker\.join"):
        shaken(dialler(), listener(introduction(2, "other")))


def test_a_broker_of_an_older_generation_is_told_how_to_rejoin() -> None:
    older, newer = introduction(1, "ours"), introduction(2, "ours#1")
    with pytest.raises(HandshakeError, match=r"broker 2 is of generation 1 .* broker 1, of generation 0.*--rejoin"):
        shaken(dialler(older), listener(newer))


def test_the_same_broker_id_on_another_disk_gets_through_for_the_controller_to_judge() -> None:
    _, two = shaken(dialler(introduction(1, directory_id="new disk")), listener())
    assert two.other.identity == PeerIdentity(
        introduction(1).identity.broker_id, identity(1, "", "new disk").directory_id, CLUSTER
    )


def test_a_dialler_waits_while_the_listener_does_not_know_who_it_is() -> None:
    known: list[Introduction] = []
    two = ListenerHandshake((KEY,), lambda: known[0] if known else None, NONCES[2])
    one = dialler()
    hello = one.start()
    assert two.received(hello[:30]) == two.received(hello[30:]) == two.received(b"") == b""
    known.append(introduction(2))
    two.received(one.received(two.received(one.received(two.received(b"")))))
    assert two.session is not None


@given(st.binary(max_size=3_000))
@example(b"GET / HTTP/1.1\r\n\r\n")
@example(b"\x16\x03\x01\x02\x00" + bytes(600))
@example(b"\0\0\0\x20" + bytes(40))
def test_noise_gets_no_answer(noise: bytes) -> None:
    two = listener()
    try:
        assert two.received(noise) == b""
        assert len(noise) < MESSAGE_BYTES_MAX + 2
    except HandshakeError:
        pass
    one = dialler()
    with contextlib.suppress(HandshakeError):
        assert one.received(noise) == b""
    assert one.session is two.session is None


def test_another_protocol_is_named() -> None:
    with pytest.raises(HandshakeError, match="looks like HTTP"):
        listener().received(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(HandshakeError, match="looks like the Kafka protocol"):
        listener().received(b"\0\0\0\x20" + bytes(32))


def test_the_port_of_clients_says_where_brokers_connect() -> None:
    with pytest.raises(HandshakeError, match=r"listens for other brokers at db1:9192"):
        dialler().received(clients_only(Address("db1", 9192)))
    for no_address in (clients_only(None), clients_only(Address("\x1b[31m", 1))):
        with pytest.raises(HandshakeError, match=r"start it again with --peer"):
            dialler().received(no_address)


def test_who_speaks_before_its_turn_is_refused() -> None:
    with pytest.raises(HandshakeError, match="before its turn"):
        listener().received(dialler().start() + b"\0\x20" + bytes(32))


def test_ids_that_are_too_long_to_be_told_are_noticed_at_once() -> None:
    check_introduction(introduction(1))
    with pytest.raises(HandshakeError, match="too long"):
        check_introduction(introduction(1, "c" * 300))
    with pytest.raises(HandshakeError, match="too long"):
        check_introduction(Introduction(identity(1), Address("h" * 300, 1)))


def test_an_older_copy_of_a_data_directory_is_told_so_whichever_side_it_is_and_nobody_speaks_to_it() -> None:
    latest, older = known({1: "second", 2: "second"}, noted=("first", "second")), known(noted=("first",))
    shaken(dialler(processes=latest), listener(processes=latest))
    shaken(dialler(processes=latest), listener(processes=known(noted=("first", "second", "third"))))
    one, two = dialler(processes=older), listener(processes=latest)
    with pytest.raises(HandshakeError, match="older than second"):
        shaken(one, two)
    assert one.session is two.session is None
    one, two = dialler(processes=latest), listener(processes=older)
    with pytest.raises(HandshakeError, match="older than second"):
        shaken(one, two)
    assert one.session is two.session is None


def test_an_older_program_speaks_of_no_processes_and_is_spoken_to(monkeypatch: pytest.MonkeyPatch) -> None:
    never = known({1: "a", 2: "a"})
    with monkeypatch.context() as patch:
        patch.setattr("logboom.peer.handshake._NEWEST_VERSION", 1)
        older = dialler()
    two = listener(processes=never)
    answer = two.received(older.start())
    proof = _mac(KEY, "proof of the dialler", older.start()[2:], answer[2:])
    assert two.received(_framed(proof)) == b""
    assert two.session is not None

    one, two = dialler(processes=never), listener()
    with monkeypatch.context() as patch:
        patch.setattr("logboom.peer.handshake._NEWEST_VERSION", 1)
        answer = two.received(one.start())
    proof = one.received(answer)
    assert one.session is not None
    assert proof == _framed(_mac(KEY, "proof of the dialler", one.start()[2:], answer[2:]))


@given(st.binary(min_size=1, max_size=500))
def test_a_process_that_is_no_name_ends_it(told: bytes) -> None:
    one, two = dialler(), listener(processes=known())
    answer = two.received(one.start())
    one.received(answer)
    proof = told + _mac(KEY, "proof of the dialler", one.start()[2:], answer[2:], told)
    with pytest.raises(HandshakeError):
        two.received(_framed(proof))
    assert two.session is None
