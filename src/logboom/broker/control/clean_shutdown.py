"""The marker of a clean shutdown: a file with the broker epoch under which all logs were closed (KIP-966).

A broker that registers without it may have lost what it had not synced, and leaves the ISR of everything that others
hold too. The marker counts only for the registration that it names, so one that an earlier shutdown left means nothing.
"""

from typing import Final

from logboom.base.ids import BrokerEpoch
from logboom.base.ports import Disk
from logboom.broker.disk.data_dir import METADATA_DIR
from logboom.storage import frame, read_whole, replace_whole, unframe

_FILE: Final = "clean-shutdown"
_TAG: Final = b"LBCS"
_VERSION: Final = 1


def write_marker(disk: Disk, epoch: BrokerEpoch) -> None:
    """All logs are closed. Durable on return. Raises OSError."""
    data = frame(_TAG, _VERSION, epoch.to_bytes(8, "big", signed=True))
    replace_whole(disk, METADATA_DIR, _FILE, data, sync=True)


def read_marker(disk: Disk) -> BrokerEpoch | None:
    """The epoch of the last clean shutdown; None where there was none, or the marker cannot be read."""
    data = read_whole(disk, f"{METADATA_DIR}/{_FILE}")
    payload = None if data is None else unframe(_TAG, _VERSION, data)
    if payload is None or len(payload) != 8:
        return None
    return BrokerEpoch(int.from_bytes(payload, "big", signed=True))
