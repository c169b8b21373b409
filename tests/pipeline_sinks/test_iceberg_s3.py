"""The sink `iceberg` with tables in an object store: a real server of S3, and Iceberg's own REST catalog over it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from tests.clients.drivers import DriverMissingError
from tests.pipeline_sinks.harness import event, rows, sink_of
from tests.pipeline_sinks.test_iceberg import Lake, expected
from tests.pipeline_sinks.test_iceberg_rest import delivered
from tests.support.iceberg_rest import IcebergRest
from tests.support.s3 import BUCKET, IDENTITY, S3Server, running_s3
from tests.support.skipping import skipped_on

from logboom.pipeline.errors import PipelineError
from logboom.pipeline.sinks.base import Delivered
from logboom.pipeline.sinks.iceberg.delivery import try_table

pytestmark = [pytest.mark.slow, pytest.mark.clients]


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_s3(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as patched:
        for name, value in IDENTITY.items():
            patched.setenv(name, value)
        yield server


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory, s3: S3Server) -> Iterator[IcebergRest]:
    with ExitStack() as stack:
        with skipped_on(DriverMissingError):
            running = stack.enter_context(IcebergRest(tmp_path_factory.mktemp("catalog"), s3))
        yield running


class S3Lake(Lake):
    """A table of the catalog, in a namespace of the test's own."""

    def __init__(self, root: Path, catalog: IcebergRest, s3: S3Server) -> None:
        properties = f"{{s3.endpoint: '{s3.endpoint}'}}"
        place = f"catalog: '{catalog.url}', table: {root.name}.events, properties: {properties}"
        super().__init__(root, f"type: iceberg, {place}")
        self.objects = s3.bucket / "lake" / root.name / "events"
        self._settings = {"uri": catalog.url, "s3.endpoint": s3.endpoint, "s3.region": "us-east-1"}

    @property
    def table(self) -> Table:
        return load_catalog("read", type="rest", **self._settings).load_table((self.root.name, "events"))

    def objects_of(self, part: str) -> list[Path]:
        return [path for path in (self.objects / part).rglob("*") if path.is_file()]


@pytest.fixture
def lake(tmp_path: Path, catalog: IcebergRest, s3: S3Server) -> S3Lake:
    return S3Lake(tmp_path, catalog, s3)


def test_a_table_is_made_in_the_bucket_and_read_back_from_it(lake: S3Lake) -> None:
    try_table(sink_of(lake.keys), lake.context)
    assert lake.open().deliver(rows([event(0)], [event(1)]), 0) == Delivered("out", 0, rows=2)
    assert lake.table.location() == f"s3://{BUCKET}/lake/{lake.root.name}/events"
    assert lake.open().deliver(rows([event(1), event(2)]), 1) == Delivered("out", 1, rows=1, repeats=1)
    assert lake.ids() == expected(0, 1, 2)
    assert len(lake.objects_of("data")) == 3


def test_check_connect_writes_and_removes_an_object_of_the_table(lake: S3Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.open().deliver(rows([event(0)]), 0)
    before = sorted(lake.objects_of(""))
    try_table(sink_of(lake.keys), lake.context)
    assert sorted(lake.objects_of("")) == before
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "expired-secret")
    with pytest.raises(PipelineError) as refused:
        try_table(sink_of(lake.keys), lake.context)
    assert "expired-secret" not in str(refused.value)


def test_an_expired_credential_loses_nothing_and_is_read_anew(lake: S3Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = lake.open()
    writer.deliver(rows([event(0)]), 0)
    with monkeypatch.context() as patched:
        patched.setenv("AWS_SECRET_ACCESS_KEY", "expired-secret")
        with pytest.raises(PipelineError) as refused:
            writer.deliver(rows([event(1)]), 1)
    assert "expired-secret" not in str(refused.value)
    assert writer.deliver(rows([event(1)]), 1).rows == 1
    assert lake.ids() == expected(0, 1)


@pytest.mark.parametrize("fault", ["kill9", "hang"])
def test_a_store_that_ends_or_hangs_loses_and_repeats_nothing(lake: S3Lake, s3: S3Server, fault: str) -> None:
    writer = lake.open()
    writer.deliver(rows([event(0)]), 0)
    getattr(s3, fault)()
    try:
        with pytest.raises(PipelineError):
            writer.deliver(rows([event(1)], [event(2)]), 1)
    finally:
        s3.start() if fault == "kill9" else s3.go_on()
    assert delivered(lake.open(), [event(0), event(1), event(2)], 1).rows == 2
    assert lake.ids() == expected(0, 1, 2)
