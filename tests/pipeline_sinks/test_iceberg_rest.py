"""The sink `iceberg` and a real REST catalog, Iceberg's own: each event once, also where a commit has no answer, has it
late, or is made when nobody waits for it any more."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from tests.clients.drivers import DriverMissingError
from tests.pipeline_sinks.harness import event, rows, sink_of
from tests.pipeline_sinks.server import IN_DOUBT, Contract, Fault, Reply, Request, Server
from tests.pipeline_sinks.test_iceberg import Lake, expected
from tests.support.iceberg_rest import IcebergRest
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S

from logboom.pipeline.errors import PipelineError
from logboom.pipeline.sinks.base import Delivered
from logboom.pipeline.sinks.iceberg import bounded_requests
from logboom.pipeline.sinks.iceberg.delivery import IcebergDelivery, open_table, try_table

pytestmark = [pytest.mark.slow, pytest.mark.clients]
ATTEMPTS = 20


class Gateway(Contract):
    """Hands requests to the catalog."""

    def __init__(self, catalog: IcebergRest) -> None:
        super().__init__()
        self._catalog = catalog
        self.holds_commit = False
        """Whether the next commit is kept, answered with 504, and made in front of the one behind it."""
        self._held: Request | None = None
        self.token: str | None = None
        """The one that it takes; None for all."""

    def handle(self, request: Request) -> Reply:
        if self.token is not None and request.headers.get("authorization") != f"Bearer {self.token}":
            told = {"message": "Not authorized", "type": "NotAuthorizedException", "code": 401}
            return Reply(401, json.dumps({"error": told}).encode(), {"Content-Type": "application/json"})
        if is_commit(request):
            if self.holds_commit:
                self.holds_commit, self._held = False, request
                return Reply(504, b"{}")
            if self._held is not None:
                held, self._held = self._held, None
                assert self._ask(held).status == 200
        return self._ask(request)

    def _ask(self, request: Request) -> Reply:
        kept = ("content-type", "accept", "x-client-version")
        headers = {name: value for name, value in request.headers.items() if name in kept}
        body = request.body if request.method == "POST" else None
        asked = urllib.request.Request(f"{self._catalog.url}{request.path}", body, headers, method=request.method)
        try:
            with urllib.request.urlopen(asked, timeout=WAIT_S) as answer:
                return Reply(answer.status, answer.read(), {"Content-Type": "application/json"})
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, error.read(), {"Content-Type": "application/json"})


def is_commit(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/tables/events")


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    with skipped_on(DriverMissingError), IcebergRest(tmp_path_factory.mktemp("catalog")) as running:
        yield running


@pytest.fixture
def gateway(catalog: IcebergRest) -> Iterator[Server]:
    with Server(Gateway(catalog)) as server:
        yield server


@pytest.fixture
def lake(tmp_path: Path, gateway: Server) -> RestLake:
    return RestLake(tmp_path, f"type: iceberg, catalog: '{gateway.url}', table: {tmp_path.name}.events")


class RestLake(Lake):
    """A table of the catalog, in a namespace of the test's own."""

    @property
    def url(self) -> str:
        return self.keys.split("'")[1]

    @property
    def table(self) -> Table:
        return load_catalog("read", type="rest", uri=self.url).load_table((self.root.name, "events"))


def delivered(writer: IcebergDelivery, values: list[Any], batch: int) -> Delivered:
    """Attempts until one succeeds."""
    for _ in range(ATTEMPTS):
        try:
            return writer.deliver(rows(values), batch)
        except PipelineError as error:
            failure = error
    raise failure


def test_a_table_is_made_and_events_are_rows_for_any_reader(lake: RestLake) -> None:
    try_table(sink_of(lake.keys), lake.context)
    assert lake.open().deliver(rows([event(0)], [event(1)]), 0) == Delivered("out", 0, rows=2)
    wide = RestLake(lake.root, f"{lake.keys}, columns: {{status: {{field: attributes.http.status, type: long}}}}")
    assert wide.open().deliver(rows([event(1), event(2)]), 1) == Delivered("out", 1, rows=1, repeats=1)
    assert lake.ids() == expected(0, 1, 2)
    found = {row["event_id"]: row["status"] for row in lake.table.scan().to_arrow().to_pylist()}
    assert found == {"web:0:0": None, "web:0:1": None, "web:0:2": 200}


@pytest.mark.parametrize("fault", [*IN_DOUBT, "429", "500", "hang"])
def test_a_commit_without_an_answer_is_made_once(
    lake: RestLake, gateway: Server, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    writer = lake.open()
    writer.deliver(rows([event(0)]), 0)
    requests = gateway.contract.requests
    first = len(requests)
    assert writer.deliver(rows([event(1)]), 1).rows == 1
    to_commit = next(at for at, request in enumerate(requests[first:]) if is_commit(request))
    monkeypatch.setattr(bounded_requests, "_TIMEOUT_S", (10.0, 1.0))
    monkeypatch.setattr(bounded_requests, "_REQUEST_MAX_S", 3.0)
    gateway.faults.next += [*[None] * to_commit, fault]
    with pytest.raises(PipelineError):
        writer.deliver(rows([event(2), event(3)]), 2)
    assert delivered(writer, [event(2), event(3)], 2).rows == 2
    assert delivered(lake.open(), [event(3), event(4)], 3).rows == 1
    assert lake.ids() == expected(0, 1, 2, 3, 4)


def test_a_commit_that_is_made_when_nobody_waits_for_it_is_the_only_one(lake: RestLake, gateway: Server) -> None:
    writer = lake.open()
    writer.deliver(rows([event(0)]), 0)
    assert isinstance(gateway.contract, Gateway)
    gateway.contract.holds_commit = True
    with pytest.raises(PipelineError):
        writer.deliver(rows([event(1)]), 1)
    assert writer.deliver(rows([event(1)]), 1).rows == 1
    assert lake.ids() == expected(0, 1)


def test_an_expired_token_loses_nothing_is_not_told_and_is_read_anew(lake: RestLake, gateway: Server) -> None:
    assert isinstance(gateway.contract, Gateway)
    tokens = ["first-token"]
    keyed = RestLake(lake.root, f"{lake.keys}, token_env: TOKEN")
    context = replace(keyed.context, secret=lambda ref: tokens[-1])
    gateway.contract.token = "first-token"
    writer = open_table(sink_of(keyed.keys), context)
    assert writer.deliver(rows([event(0)]), 0).rows == 1
    gateway.contract.token = "second-token"
    with pytest.raises(PipelineError, match="Not authorized") as told:
        writer.deliver(rows([event(1)]), 1)
    assert "first-token" not in str(told.value)
    tokens.append("second-token")
    assert writer.deliver(rows([event(1)]), 1).rows == 1
    gateway.contract.token = None
    assert lake.ids() == expected(0, 1)
    assert not keyed.letters.refused


def test_a_catalog_that_is_killed_loses_and_repeats_nothing(lake: RestLake, catalog: IcebergRest) -> None:
    writer = lake.open()
    writer.deliver(rows([event(0)]), 0)
    catalog.kill9()
    with pytest.raises(PipelineError):
        writer.deliver(rows([event(1)]), 1)
    catalog.start()
    assert delivered(lake.open(), [event(0), event(1)], 1).rows == 1
    assert lake.ids() == Counter({"web:0:0": 1, "web:0:1": 1})
