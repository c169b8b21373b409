"""Entities of any version from one list of fields, and one code for every error."""

import inspect
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v0.response import MetadataResponseBroker as BrokerV0
from kio.schema.metadata.v9.response import MetadataResponse, MetadataResponsePartition

from logboom.base import errors as base_errors
from logboom.base.errors import LogboomError, StorageError
from logboom.groups import errors as group_errors
from logboom.kafka.errors import error_code, error_message
from logboom.kafka.wire.messages import as_milliseconds, make, milliseconds, nested, response_class


def test_fields_of_other_versions_are_left_out_and_slips_are_not() -> None:
    broker = make(BrokerV0, node_id=1, host="a", port=2, rack=None)
    assert (broker.node_id, broker.host, broker.port) == (1, "a", 2)
    with pytest.raises(TypeError, match="no version of MetadataResponseBroker has a field 'hots'"):
        make(BrokerV0, node_id=1, hots="a", port=2)
    with pytest.raises(TypeError, match="port"):
        make(BrokerV0, node_id=1, host="a")


def test_nested_classes() -> None:
    assert response_class(3, 9) is MetadataResponse
    assert nested(MetadataResponse, "topics", "partitions") is MetadataResponsePartition


@given(st.integers(-(2**31), 2**31 - 1))
def test_durations_are_exact(value: int) -> None:
    assert milliseconds(value) == timedelta(milliseconds=value)
    assert as_milliseconds(milliseconds(value)) == value


def test_every_error_has_a_code() -> None:
    bases = {LogboomError, group_errors.GroupError}
    no_code_of_their_own = {
        group_errors.GroupTooLargeError,
        group_errors.GroupRecordError,
        base_errors.CompactionCancelledError,  # the log cleaner answers no request
    }
    for module in (base_errors, group_errors):
        for _, cls in inspect.getmembers(module, inspect.isclass):
            if issubclass(cls, LogboomError) and cls.__module__ == module.__name__ and cls not in bases:
                unknown = error_code(cls.__new__(cls)) is ErrorCode.unknown_server_error
                assert unknown == (cls in no_code_of_their_own), cls


def test_codes_follow_the_class_tree() -> None:
    class WorseError(StorageError):
        pass

    assert error_code(None) is ErrorCode.none
    assert error_code(WorseError("x")) is ErrorCode.kafka_storage_error
    assert error_code(ValueError("x")) is ErrorCode.unknown_server_error
    assert error_message(None) is None
    assert error_message(WorseError("the disk")) == "the disk"
    assert error_message(WorseError()) == "kafka_storage_error"
