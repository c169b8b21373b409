"""Why a message is refused before it gets to a partition.

Each error says which of JetStream's errors it is, by the numbers and words of nats-server's errors.json.
"""

from logboom.base.errors import LogboomError


class MessageRefusedError(LogboomError):
    """A message that is refused for what is in it; the text is JetStream's description, or continues it."""

    code = 400
    """The class of error, as of HTTP."""
    err_code = 10003
    """Which error of JetStream: this one is a bad request."""

    def __init__(self, why: str, *, code: int = 0, err_code: int = 0) -> None:
        super().__init__(why)
        self.code = code or self.code
        self.err_code = err_code or self.err_code


class HeaderError(MessageRefusedError):
    """Bytes that are not a header block."""


class DamagedEnvelopeError(MessageRefusedError):
    """An envelope of Liftbridge whose checksum is wrong, or whose checksum is right but which holds no message."""


class WrongStreamError(MessageRefusedError):
    """A message names another stream as the one that it is meant for (`Nats-Expected-Stream`)."""

    err_code = 10060


class UnsupportedTermError(MessageRefusedError):
    """A message asks for something that is not supported here, or in words that cannot be read."""
