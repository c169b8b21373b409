"""Opens the catalog of a sink. Knows pyiceberg and credentials; must not know events, batches or Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from requests import Response, Session
from requests.adapters import HTTPAdapter

from logboom.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from logboom.pipeline.sinks.iceberg import IcebergSink

_TIMEOUT_S: Final = (10.0, 60.0)
"""To connect, and between two bytes of an answer."""


def needs_pyiceberg() -> None:
    """PipelineError where pyiceberg is not installed."""
    try:
        import pyiceberg  # noqa: F401
    except ImportError as error:
        raise PipelineError(f"the sink iceberg needs pyiceberg ({error}): pip install 'logboom[iceberg]'") from error


def open_catalog(sink: IcebergSink, resolve: Callable[[str], Path], secrets: Mapping[str, str]) -> Catalog:
    """The catalog that a sink names; `secrets` are the texts of its credentials by `KeyRef.id`.

    A REST catalog is asked for its settings at once; what pyiceberg raises says what is wrong.
    """
    if sink.path is not None:
        from logboom.pipeline.sinks.iceberg.hadoop_catalog import HadoopCatalog

        return HadoopCatalog(resolve(sink.path))
    assert sink.catalog is not None
    properties = {**dict(sink.properties), "uri": sink.catalog}
    if sink.warehouse is not None:
        properties["warehouse"] = sink.warehouse
    for name, ref in (("token", sink.token), ("credential", sink.credential)):
        if ref is not None:
            properties[name] = secrets[ref.id]
    return _rest_catalog(properties)


def _rest_catalog(properties: Mapping[str, str]) -> Catalog:
    from pyiceberg.catalog.rest import RestCatalog

    class BoundedRestCatalog(RestCatalog):
        """One whose requests end: pyiceberg's wait for ever where a server takes them and says nothing."""

        def _create_session(self) -> Session:
            session = super()._create_session()
            for scheme in ("https://", "http://"):
                session.mount(scheme, _BoundedAdapter())
            return session

    return BoundedRestCatalog("rest", **properties)


class _BoundedAdapter(HTTPAdapter):
    def send(self, request: Any, *arguments: Any, **named: Any) -> Response:
        if named.get("timeout") is None:
            named["timeout"] = _TIMEOUT_S
        return super().send(request, *arguments, **named)
