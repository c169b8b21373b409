"""`advertised.listeners` among the settings of a broker: where clients connect to it, for tools that read it there.

Kafka writes the address with its protocol, and the broker knows the address only once it listens. So it is described
here, and not by the table of settings. It is read at the start (`kafka.advertised`), and cannot be changed while the
broker runs.
"""

from typing import Final

from logboom.base.errors import InvalidConfigError
from logboom.base.quantities import join_address
from logboom.kafka.admin.configs import STRING, Described, Source

ADVERTISED_LISTENERS: Final = "advertised.listeners"


def describe_advertised(address: tuple[str, int]) -> Described:
    """The setting of a broker that clients reach at this address."""
    value = f"PLAINTEXT://{join_address(*address)}"
    return Described(
        name=ADVERTISED_LISTENERS,
        value=value,
        type=STRING,
        source=Source.STATIC_BROKER,
        read_only=True,
        sensitive=False,
        documentation="Where clients connect to this broker (kafka.advertised).",
        synonyms=((ADVERTISED_LISTENERS, value, Source.STATIC_BROKER),),
    )


def refusal() -> InvalidConfigError:
    """The error for a client that would change it."""
    return InvalidConfigError(
        f"{ADVERTISED_LISTENERS} is read when the broker starts: change kafka.advertised in its configuration (file, "
        "LOGBOOM_ variable or flag) and restart it"
    )
