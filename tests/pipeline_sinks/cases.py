"""The products that every sink is tested with alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tests.pipeline_sinks.contracts import (
    clickhouse,
    datadog_logs,
    elasticsearch,
    google_cloud_logging,
    loki,
    new_relic,
    otlp,
    splunk_hec,
    sumo_logic,
    webhook,
)
from tests.pipeline_sinks.server import Contract

SECRET = Contract.secret
EXPIRED = "expired-credential"


def _as_it_is(url: str, secret: str) -> str:
    return secret


def _address(url: str, secret: str) -> str:
    return f"{url}/receiver/v1/http/{secret}"


def _account(url: str, secret: str) -> str:
    return google_cloud_logging.account(url, "writer" if secret == SECRET else secret)


@dataclass(frozen=True)
class Case:
    name: str
    keys: str
    """Of the sink in a file; `{url}` is where the server is."""
    contract: type[Contract]
    poison: str
    """What the reason of a refused event has in it."""
    repeats: bool = True
    """Whether an event that is sent twice is there twice."""
    credential: Callable[[str, str], str] = _as_it_is
    """The text of the credential, from the address of the server and the secret."""


CASES = (
    Case("webhook", webhook.KEYS, webhook.Webhook, "there is poison in it"),
    Case("elasticsearch", elasticsearch.KEYS, elasticsearch.Elasticsearch, "mapper_parsing", repeats=False),
    Case("splunk_hec", splunk_hec.KEYS, splunk_hec.SplunkHec, "Invalid data format"),
    Case("clickhouse", clickhouse.KEYS, clickhouse.Clickhouse, "there is poison", repeats=False),
    Case("loki", loki.KEYS, loki.Loki, "timestamp too old", repeats=False),
    Case("otlp", otlp.KEYS, otlp.Otlp, "a record with poison"),
    Case("datadog_logs", datadog_logs.KEYS, datadog_logs.DatadogLogs, "Invalid log"),
    Case("new_relic", new_relic.KEYS, new_relic.NewRelic, "Error unmarshalling"),
    Case("sumo_logic", sumo_logic.KEYS, sumo_logic.SumoLogic, "malformed line", credential=_address),
    Case(
        "google_cloud_logging",
        google_cloud_logging.KEYS,
        google_cloud_logging.GoogleCloudLogging,
        "Log entry with poison",
        repeats=False,
        credential=_account,
    ),
)
_QUICK = ("webhook", "elasticsearch", "clickhouse")

everywhere = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
"""With every product."""
mostly = pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=() if case.name in _QUICK else pytest.mark.slow) for case in CASES],
)
"""The same, the products whose way through the machinery is another's among the slow tests."""
