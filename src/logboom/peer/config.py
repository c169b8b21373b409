"""Settings of the listener for brokers."""

from pathlib import Path
from typing import Self

from pydantic import model_validator

from logboom.base.settings import Address, Settings


class PeerConfig(Settings):
    """Where the other brokers of the cluster connect, and what proves that they belong to it."""

    listen: Address | None = None
    """Address to listen on; port 0 asks the system for a free one. null: this broker runs alone and communicates with
    no other."""

    advertised: Address | None = None
    """Address that other brokers connect to. Default: the address listened on, or the name of this machine where that
    is every interface."""

    key_file: Path | None = None
    """File with the cluster's key, the same for all its brokers; `logboom cluster key --out FILE` makes one. Whoever
    has the key can act as a broker. It authenticates; what brokers send one another is not encrypted. Of several keys,
    one a line, the first is used, and all are taken from others."""

    seal_records: bool = False
    """Whether records that this broker sends to others are protected against change on the way. All else that brokers
    say to each other always is; records have their checksums, which show accidents alone. It costs both sides some 1 ms
    of a core for each MB."""

    @model_validator(mode="after")
    def _has_a_key(self) -> Self:
        if self.listen is not None and self.key_file is None:
            raise ValueError(
                "peer.listen needs peer.key_file, the cluster's key: make one with `logboom cluster key --out FILE` "
                "and give it to every broker"
            )
        return self
