"""Records that are committed together are read back as they were, and garbage is told apart from a newer version."""

import pytest

from logboom.base.errors import FormatVersionError, StorageError
from logboom.base.ids import ProducerId
from logboom.metadata import ProducerIdsAllocated, decode_all, encode_all


def test_records_come_back_in_order() -> None:
    records = [ProducerIdsAllocated(next_id=ProducerId(n)) for n in (5, 7)]
    assert decode_all(encode_all(records)) == records
    assert decode_all(encode_all([])) == []


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b"[1]", b'[{"type": "unknown", "version": 0}]'])
def test_what_is_no_list_of_records_is_refused(data: bytes) -> None:
    with pytest.raises(StorageError):
        decode_all(data)


def test_a_newer_version_is_refused_by_name() -> None:
    with pytest.raises(FormatVersionError, match="producer_ids_allocated"):
        decode_all(b'[{"type": "producer_ids_allocated", "version": 9, "next_id": 1}]')


def test_one_record_that_cannot_be_read_is_told_among_others_that_can() -> None:
    known = encode_all([ProducerIdsAllocated(next_id=ProducerId(5))])[1:-1]
    with pytest.raises(FormatVersionError, match="level 99"):
        decode_all(b"[" + known + b', {"type": "metadata_level_set", "version": 1, "level": 99}]')
    with pytest.raises(FormatVersionError, match="stream_deleted"):
        decode_all(b"[" + known + b', {"type": "stream_deleted", "version": 2, "with": "a field of later"}]')
    with pytest.raises(StorageError, match="wrong"):
        decode_all(b"[" + known + b', {"type": "producer_ids_allocated", "version": 1, "wrong": 1, "next_id": 1}]')
    with pytest.raises(StorageError, match="version"):
        decode_all(b"[" + known + b', {"type": "producer_ids_allocated", "next_id": 1}]')
