"""Requests about ACLs: answered as by a Kafka that has no authorizer."""

from pathlib import Path
from typing import Any, Final

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.door import running
from tests.support.simulated import run

from logboom.kafka.errors import NO_ACLS
from logboom.kafka.wire.messages import make, nested

DESCRIBE, CREATE, DELETE = 29, 30, 31
FILTER: Final[dict[str, Any]] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
"""All ACLs (KIP-140: ANY is 1)."""
ALLOWS_ALL: Final[dict[str, Any]] = {
    "resource_type": 2,
    "resource_name": "orders",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 2,
    "permission_type": 3,
}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_there_is_no_authorizer_and_every_request_about_acls_says_so(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            told = await client.ask(DESCRIBE, version, **FILTER)
            assert (told.error_code, told.error_message) == (ErrorCode.security_disabled, NO_ACLS)
            assert told.resources == ()
            creation = make(nested(load_request_schema(CREATE, version), "creations"), **ALLOWS_ALL)
            created = await client.ask(CREATE, version, creations=(creation, creation))
            assert [(one.error_code, one.error_message) for one in created.results] == [
                (ErrorCode.security_disabled, NO_ACLS)
            ] * 2
            which = make(nested(load_request_schema(DELETE, version), "filters"), **FILTER)
            deleted = await client.ask(DELETE, version, filters=(which,))
            (one,) = deleted.filter_results
            assert (one.error_code, one.matching_acls) == (ErrorCode.security_disabled, ())

    run(body)
