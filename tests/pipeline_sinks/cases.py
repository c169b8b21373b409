"""The products that every sink is tested with alike."""

from __future__ import annotations

from dataclasses import dataclass

from tests.pipeline_sinks.contracts import elasticsearch, webhook
from tests.pipeline_sinks.server import Contract


@dataclass(frozen=True)
class Case:
    name: str
    keys: str
    """Of the sink in a file; `{url}` is where the server is."""
    contract: type[Contract]
    repeats: bool
    """Whether an event that is sent twice is there twice."""
    poison: str
    """What the reason of a refused event has in it."""
    expires: bool = True
    """Whether it has a credential that may expire."""


CASES = (
    Case("webhook", webhook.KEYS, webhook.Webhook, repeats=True, poison="there is poison in it"),
    Case("elasticsearch", elasticsearch.KEYS, elasticsearch.Elasticsearch, repeats=False, poison="mapper_parsing"),
)
