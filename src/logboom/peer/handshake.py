"""The handshake between two brokers: each proves to the other that it has the cluster's key, and who it is.

    dialler -> listener   hello: magic, versions, nonce, lane, expected broker; its three ids, its address; key's name
    listener -> dialler   hello: the same of its own, then its proof
    dialler -> listener   its proof; frames may follow at once, in version 1

In version 2, which both sides speak if both can, nothing else is sent before both data directories are known to be the
latest ones of their brokers:

    dialler -> listener   the process of the listener that it knows to be registered last, then its proof
    listener -> dialler   the process of the dialler that it knows to be registered last, then a seal
    dialler -> listener   a seal; frames may follow at once

Whoever is told of a process that its directory has not noted is an older copy (`broker.control.incarnations`). It ends
the connection: it would vote a second time, and forget what it has acknowledged.

A proof is HMAC-SHA256 under the cluster's key over a label, different for each side, and all that was said before. Both
nonces are in it, so that a handshake that was recorded is worth nothing; both sides and the lane are, so that nothing
can be sent on to a broker that it was not meant for; the labels keep a side's own words from being given back to it.
The keys of the frames are made the same way, one for each direction. Where a listener has several keys, it takes the
one that the dialler names by a digest.

It authenticates and does not encrypt: whoever is on the way can read all, and change nothing unnoticed.

The form of the hello is the same in all versions; they differ in what follows it. Each message is two bytes of length
and this many bytes. Pure: bytes in, bytes out. Nothing here trusts a length: a message has at most `MESSAGE_BYTES_MAX`.
"""

import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from logboom.base.errors import LogboomError
from logboom.base.ids import BrokerId, DirectoryId
from logboom.base.ports import Bytes
from logboom.broker.misdirected_peer import HELLO_MAGIC, explained
from logboom.broker.peers import GENERATION_MARK, Address, Lane, PeerIdentity

MESSAGE_BYTES_MAX: Final = 1_024
NONCE_BYTES: Final = 32
ANY_BROKER: Final = BrokerId(-1)
"""Stands for a broker whose id is not known to who dials it."""

_OLDEST_VERSION: Final = 1
_NEWEST_VERSION: Final = 2
_PROCESSES_SINCE: Final = 2
"""The version from which on both sides say which process of the other they know."""
_PROOF_BYTES: Final = 32
_KEY_NAME_BYTES: Final = 8
_LENGTH: Final = Struct(">H")
_ID_CHARS_MAX: Final = 128
_HOST_CHARS_MAX: Final = 255
_OTHER_PROTOCOLS: Final = {
    b"GE": "HTTP",
    b"PO": "HTTP",
    b"HE": "HTTP",
    b"PU": "HTTP",
    b"OP": "HTTP",
    b"HT": "HTTP",
    b"IN": "NATS",
    b"SS": "SSH",
    b"\x16\x03": "TLS",
    b"\0\0": "the Kafka protocol",
}


class HandshakeError(LogboomError):
    """The other side is not a broker of this cluster, or not the one that was meant; the text says what to do."""


class MisdirectedError(HandshakeError):
    """A broker of this cluster listens there, and not the one that was meant: addresses may be older than brokers."""


@dataclass(frozen=True, slots=True)
class Processes:
    """What a broker knows of processes, its own and those of others."""

    registered: Callable[[PeerIdentity], str]
    """The process of a broker with this data directory that was registered last; empty where none is known."""
    check_noted: Callable[[str], None]
    """Raises LogboomError where this broker's data directory does not know a process of its own that was registered."""


def _none_known(_peer: PeerIdentity) -> str:
    return ""


def _any(_process: str) -> None:
    """A broker that is not registered yet has nothing to compare with."""


NO_PROCESSES: Final = Processes(_none_known, _any)


class _Hello(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    oldest_version: Annotated[int, Meta(ge=0, le=65_535)]
    newest_version: Annotated[int, Meta(ge=0, le=65_535)]
    nonce: Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
    lane: Annotated[int, Meta(ge=0, le=255)]
    expected: Annotated[int, Meta(ge=-1, le=2**31 - 1)]
    broker_id: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    directory_id: Annotated[str, Meta(min_length=1, max_length=_ID_CHARS_MAX)]
    cluster_id: Annotated[str, Meta(max_length=_ID_CHARS_MAX)]
    host: Annotated[str, Meta(max_length=_HOST_CHARS_MAX)]
    port: Annotated[int, Meta(ge=0, le=65_535)]
    key_name: Annotated[bytes, Meta(min_length=_KEY_NAME_BYTES, max_length=_KEY_NAME_BYTES)]


_DECODER: Final = msgspec.msgpack.Decoder(_Hello)


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a broker says of itself."""

    identity: PeerIdentity
    address: Address
    """Where it listens for others."""


@dataclass(frozen=True, slots=True)
class Session:
    """What a handshake has led to."""

    other: Introduction
    lane: Lane
    send_key: bytes
    receive_key: bytes


def check_introduction(own: Introduction) -> None:
    """Raises HandshakeError where a broker's own ids or address are too long to be told to others."""
    try:
        _read_hello(_hello(own, b"", bytes(NONCE_BYTES), Lane.CONTROL, ANY_BROKER))
    except (ValueError, HandshakeError):
        raise HandshakeError("the cluster's id, or the address that other brokers are told, is too long") from None


def _hello(own: Introduction, key: bytes, nonce: bytes, lane: int, expected: BrokerId) -> bytes:
    """The bytes of a hello; ValueError where they are too many."""
    hello = _Hello(
        oldest_version=_OLDEST_VERSION,
        newest_version=_NEWEST_VERSION,
        nonce=nonce,
        lane=lane,
        expected=expected,
        broker_id=own.identity.broker_id,
        directory_id=own.identity.directory_id,
        cluster_id=own.identity.cluster_id,
        host=own.address.host,
        port=own.address.port,
        key_name=_key_name(key),
    )
    data = HELLO_MAGIC + msgspec.msgpack.encode(hello)
    if len(data) > MESSAGE_BYTES_MAX - _PROOF_BYTES:
        raise ValueError("too long")
    return data


def _read_hello(data: bytes) -> _Hello:
    if not data.startswith(HELLO_MAGIC):
        raise HandshakeError("it does not speak Logboom's protocol between brokers")
    try:
        return _DECODER.decode(data[len(HELLO_MAGIC) :])
    except (msgspec.MsgspecError, ValueError) as error:  # ValueError: a text that is not UTF-8
        raise HandshakeError(f"its introduction cannot be read: {error}") from None


def _introduction(hello: _Hello) -> Introduction:
    identity = PeerIdentity(BrokerId(hello.broker_id), DirectoryId(hello.directory_id), hello.cluster_id)
    return Introduction(identity, Address(hello.host, hello.port))


def _mac(key: bytes, label: str, *said: bytes) -> bytes:
    parts = [f"logboom peer: {label}".encode(), *said]
    return hmac.digest(key, b"".join(_LENGTH.pack(len(part)) + part for part in parts), "sha256")


def _key_name(key: bytes) -> bytes:
    return _mac(key, "name of the key")[:_KEY_NAME_BYTES]


def _check(own: Introduction, hello: _Hello) -> Introduction:
    """What both sides ask of the other's words, once they are proven. Raises HandshakeError."""
    other = _introduction(hello)
    if hello.oldest_version > _NEWEST_VERSION or hello.newest_version < _OLDEST_VERSION:
        raise HandshakeError(
            f"broker {hello.broker_id} speaks versions {hello.oldest_version} to {hello.newest_version} of the protocol"
            f" between brokers, this one {_OLDEST_VERSION} to {_NEWEST_VERSION}: update one version of Logboom at a"
            " time"
        )
    if other.identity.cluster_id and own.identity.cluster_id not in ("", other.identity.cluster_id):
        theirs, ours = (one.identity.cluster_id.partition(GENERATION_MARK) for one in (other, own))
        if theirs[0] == ours[0]:
            raise HandshakeError(
                f"broker {hello.broker_id} is of generation {theirs[2] or 0} of the cluster and this one, broker "
                f"{own.identity.broker_id}, of generation {ours[2] or 0}: the cluster was founded again. Stop the "
                "one of the older generation, run logboom cluster recover --rejoin on its data directory, and start it "
                "with --join"
            )
        raise HandshakeError(
            f"broker {hello.broker_id} belongs to cluster {other.identity.cluster_id} and this one, broker "
            f"{own.identity.broker_id}, to cluster {own.identity.cluster_id}: correct the addresses in broker.join, or "
            "give the broker that is to move an empty data directory (broker.data_dir)"
        )
    if (hello.broker_id, hello.directory_id) == (own.identity.broker_id, own.identity.directory_id):
        raise MisdirectedError(f"this is the address of broker {hello.broker_id} itself")
    return other


class _Messages:
    """Cuts bytes into messages, of which there is never more than the beginning of one and what the peer may send."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = b""

    def add(self, data: Bytes) -> None:
        self._data += data

    def next(self) -> bytes | None:
        """The next message, if it is whole. Raises HandshakeError."""
        if len(self._data) < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack_from(self._data)
        if not 0 < size <= MESSAGE_BYTES_MAX:
            known = _OTHER_PROTOCOLS.get(self._data[: _LENGTH.size])
            looks = f": this looks like {known}" if known else ""
            raise HandshakeError(f"it does not speak Logboom's protocol between brokers{looks}")
        end = _LENGTH.size + size
        if len(self._data) < end:
            return None
        message, self._data = self._data[_LENGTH.size : end], self._data[end:]
        return message

    def rest(self) -> bytes:
        """All that is left."""
        rest, self._data = self._data, b""
        return rest


def _framed(message: bytes) -> bytes:
    return _LENGTH.pack(len(message)) + message


def _sends_processes(hello: _Hello) -> bool:
    """Whether the other side speaks of processes too."""
    return hello.newest_version >= _PROCESSES_SINCE


def _process(told: bytes) -> str:
    try:
        return told.decode()
    except UnicodeDecodeError:
        raise HandshakeError("it names a process with a name that cannot be read") from None


def _known_process(processes: Processes, other: Introduction) -> bytes:
    return processes.registered(other.identity).encode()[:_ID_CHARS_MAX]


def _check_noted(processes: Processes, told: bytes) -> None:
    process = _process(told)
    if process:
        try:
            processes.check_noted(process)
        except LogboomError as error:
            raise HandshakeError(str(error)) from None


class DiallerHandshake:
    """The side that has made the connection. `start` what it says; then `received` what comes, until `session`."""

    def __init__(
        self,
        key: bytes,
        own: Introduction,
        nonce: bytes,
        lane: Lane,
        expected: BrokerId,
        processes: Processes = NO_PROCESSES,
    ) -> None:
        self._key = key
        self._own = own
        self._lane = lane
        self._expected = expected
        self._processes = processes
        self._hello = _hello(own, key, nonce, lane, expected)
        self._messages = _Messages()
        self._answer = b""
        """What the listener has said first."""
        self._proof = b""
        """What this side has answered, where the listener says one thing more."""
        self._agreed: Session | None = None
        self.session: Session | None = None

    def start(self) -> bytes:
        """What is sent first."""
        return _framed(self._hello)

    def received(self, data: Bytes) -> bytes:
        """Bytes came: what to answer. Raises HandshakeError."""
        self._messages.add(data)
        message = self._messages.next()
        if message is None:
            return b""
        return self._second(message) if self._agreed is None else self._last(message)

    def _second(self, message: bytes) -> bytes:
        if (misdirected := explained(message)) is not None:
            raise HandshakeError(misdirected)
        said, proof = message[:-_PROOF_BYTES], message[-_PROOF_BYTES:]
        hello = _read_hello(said)
        if not hmac.compare_digest(proof, _mac(self._key, "proof of the listener", self._hello, said)):
            raise HandshakeError(
                "the broker there has not proven that it has this cluster's key: all brokers of a cluster need the"
                " same peer.key_file"
            )
        other = _check(self._own, hello)
        if hello.lane != self._lane:
            raise HandshakeError("it names another connection")
        if self._expected not in (ANY_BROKER, hello.broker_id):
            raise MisdirectedError(f"broker {hello.broker_id} listens there, and not broker {self._expected}")
        keys = _frame_keys(self._key, self._hello, message)
        session = Session(other, self._lane, send_key=keys[0], receive_key=keys[1])
        if not _sends_processes(hello):
            self.session = session
            return _framed(_mac(self._key, "proof of the dialler", self._hello, message))
        self._agreed, self._answer = session, message
        told = _known_process(self._processes, other)
        self._proof = told + _mac(self._key, "proof of the dialler", self._hello, message, told)
        return _framed(self._proof)

    def _last(self, message: bytes) -> bytes:
        assert self._agreed is not None
        told, seal = message[:-_PROOF_BYTES], message[-_PROOF_BYTES:]
        before = (self._hello, self._answer, self._proof)
        if not hmac.compare_digest(seal, _mac(self._key, "what the listener knows", *before, told)):
            raise HandshakeError("its messages were changed on the network")
        _check_noted(self._processes, told)
        self.session = self._agreed
        return _framed(_mac(self._key, "end of the handshake", *before, message))

    def rest(self) -> bytes:
        """Bytes after the handshake."""
        return self._messages.rest()


class ListenerHandshake:
    """The side that was dialled. `received` what comes, until `session`."""

    def __init__(
        self,
        keys: Sequence[bytes],
        own: Callable[[], Introduction | None],
        nonce: bytes,
        processes: Callable[[], Processes] = lambda: NO_PROCESSES,
    ) -> None:
        """`own` may be None for a while; the dialler then waits, and `received` is called again once it is known."""
        self._keys = keys
        self._key = keys[0]
        self._own = own
        self._nonce = nonce
        self._processes = processes
        self._messages = _Messages()
        self._first: bytes | None = None
        self._said = b""
        """What this side has answered."""
        self._agreed: Session | None = None
        self._before_end: tuple[bytes, ...] = ()
        """All that was said before the dialler's last message."""
        self.session: Session | None = None

    def start(self) -> bytes:
        """Nothing: the dialler speaks first."""
        return b""

    def received(self, data: Bytes) -> bytes:
        """Bytes came: what to answer. Raises HandshakeError."""
        self._messages.add(data)
        own = self._own()
        if not self._said:
            return self._answer(own)
        message = self._messages.next()
        if message is None:
            return b""
        assert own is not None
        if self._agreed is None:
            return self._proven(own, message)
        if not hmac.compare_digest(message, _mac(self._key, "end of the handshake", *self._before_end)):
            raise HandshakeError("its messages were changed on the network")
        self.session = self._agreed
        return b""

    def _proven(self, own: Introduction, message: bytes) -> bytes:
        assert self._first is not None
        hello = _read_hello(self._first)
        told, proof = message[:-_PROOF_BYTES], message[-_PROOF_BYTES:]
        both = _sends_processes(hello)
        said = (self._first, self._said, told) if both else (self._first, self._said)
        if not hmac.compare_digest(proof if both else message, _mac(self._key, "proof of the dialler", *said)):
            raise HandshakeError("it has not proven that it has this cluster's key (peer.key_file)")
        other = _check(own, hello)
        if hello.lane not in Lane.__members__.values():
            raise HandshakeError(f"it asks for lane {hello.lane}, which does not exist")
        keys = _frame_keys(self._key, self._first, self._said)
        session = Session(other, Lane(hello.lane), send_key=keys[1], receive_key=keys[0])
        if not both:
            self.session = session
            return b""
        processes = self._processes()
        _check_noted(processes, told)
        if self._messages.rest():
            raise HandshakeError("it sent a message before its turn")
        before = (self._first, self._said, message)
        known = _known_process(processes, other)
        answer = known + _mac(self._key, "what the listener knows", *before, known)
        self._agreed, self._before_end = session, (*before, answer)
        return _framed(answer)

    def _answer(self, own: Introduction | None) -> bytes:
        if self._first is None:
            self._first = self._messages.next()
            if self._first is None:
                return b""
            name = _read_hello(self._first).key_name
            # Without a key of that name, the proof under another one tells the dialler that the keys differ.
            self._key = next((key for key in self._keys if _key_name(key) == name), self._key)
        if self._messages.rest():
            raise HandshakeError("it sent a message before its turn")
        if own is None:
            return b""
        said = _hello(own, self._key, self._nonce, _read_hello(self._first).lane, ANY_BROKER)
        self._said = said + _mac(self._key, "proof of the listener", self._first, said)
        return _framed(self._said)

    def rest(self) -> bytes:
        """Bytes after the handshake."""
        return self._messages.rest()


def _frame_keys(key: bytes, first: bytes, second: bytes) -> tuple[bytes, bytes]:
    """The keys of the dialler's frames and of the listener's."""
    return _mac(key, "frames of the dialler", first, second), _mac(key, "frames of the listener", first, second)
