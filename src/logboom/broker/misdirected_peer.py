"""A broker has dialled the port where another one serves clients: how the server recognises it, and what it answers.

This address is easily given to --join, since it is the one that everybody knows. The first bytes that a broker sends
look like the beginning of a long request of Kafka's protocol: without this module, one side would wait for the rest of
it, and the other for an answer. No key proves the answer, so nothing follows from it but a message.
"""

from struct import Struct
from typing import Final

from logboom.base.ports import Bytes
from logboom.base.settings import join_address
from logboom.broker.peers import Address

HELLO_MAGIC: Final = b"logboom peer\0"
"""What the introduction of a broker begins with, behind the two bytes of its length."""

_ANSWER_MAGIC: Final = b"logboom clients\0"
_LENGTH: Final = Struct(">H")
_ADDRESS_CHARS_MAX: Final = 300


def is_broker(first: Bytes) -> bool:
    """Whether the first bytes on a connection are those of a broker that introduces itself."""
    return bytes(first[_LENGTH.size : _LENGTH.size + len(HELLO_MAGIC)]) == HELLO_MAGIC


def clients_only(peer_address: Address | None) -> bytes:
    """The answer to such a broker: where this broker listens for others, if it does."""
    text = "" if peer_address is None else join_address(*peer_address)[:_ADDRESS_CHARS_MAX]
    message = _ANSWER_MAGIC + text.encode()
    return _LENGTH.pack(len(message)) + message


def explained(message: Bytes) -> str | None:
    """The text of such an answer, without its length; None if the bytes are another message."""
    data = bytes(message)
    if not data.startswith(_ANSWER_MAGIC):
        return None
    address = data[len(_ANSWER_MAGIC) :].decode(errors="replace")
    if not address or not address.isprintable():
        return (
            "clients connect there, and the broker of that port listens for no other brokers: start it again with "
            "--peer HOST:PORT (peer.listen), and name that address"
        )
    return f"clients connect there: that broker listens for other brokers at {address} (its peer.listen)"
