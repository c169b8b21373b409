"""The dashboards and alarms in deploy/ ask for metrics and labels that /metrics has; their queries are PromQL."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import promql_parser as promql
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from ruamel.yaml import YAML
from tests.cli.running import ok
from tests.nats.servers import program
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

from logboom.app.nats_metrics import nats_metrics
from logboom.app.peer_metrics import peer_metrics
from logboom.collector.stats import BufferNumbers, CollectorMetrics, FileNumbers, Snapshot
from logboom.nats.metrics import NatsMetrics
from logboom.peer.metrics import PeerMetrics
from logboom.pipeline.checkpoint.ledger import BatchRecord, Ledger
from logboom.pipeline.run.display import PipelineMetrics
from logboom.pipeline.run.progress import RunProgress
from logboom.pipeline.sinks.base import Delivered

DEPLOY: Final = Path(__file__).parent.parent.parent / "deploy"
BOARDS: Final = sorted(DEPLOY.glob("grafana/*.json"))
SCRAPED: Final = {"job", "instance"}
"""Labels that Prometheus adds to everything."""
Labels = dict[str, set[str]]
"""Metric -> the labels it was seen with; none were seen of one without samples yet."""


class _Families(Collector):
    def __init__(self, *families: Metric) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def _text(*collectors: Collector) -> str:
    registry = CollectorRegistry()
    for one in collectors:
        registry.register(one)
    return generate_latest(registry).decode()


def _of_a_collector() -> str:
    files = FileNumbers(files=1, handles=1, lag_bytes=0, rotations=0, truncations=0, bytes_lost=0, errors=0)
    buffer = BufferNumbers(
        lines=1, bytes=1, waiting_lines=0, fill_bytes=0, max_bytes=1, dropped=0, damaged=0, cut=0, errors=0
    )
    output = {"records": 1, "bytes": 1, "refused": 0, "in_flight_records": 0, "in_flight_bytes": 0, "producers": 1}
    snapshot = Snapshot(
        seconds=1, waiting=False, checkpoint_errors=0, files={"app": files}, buffers={"syslog": buffer}, **output
    )
    return _text(CollectorMetrics(lambda: snapshot))


def _of_a_pipeline() -> str:
    progress = RunProgress("shop")
    ledger = Ledger(
        records_in={"s": 2},
        bytes_in=1,
        copies=1,
        out={"o": 1},
        bytes_out=1,
        dropped={"d": 1},
        dead={"p": 1},
        masked={"email": 1},
        missed={"t": 1},
    )
    progress.batch(BatchRecord(batch=0, plan="", started_at="", duration_ms=1, ledger=ledger, total=ledger))
    progress.sink("search")
    progress.delivered(Delivered("search", 0, rows=1))
    return _text(PipelineMetrics(progress))


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Labels:
    """What a broker, a collector and a pipeline name on /metrics."""
    settings = ("--nats", "embedded", "--set", "nats.embedded_listen=127.0.0.1:0") if program() is not None else ()
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", *settings) as broker:
        ok("streams", "create", "t", bootstrap=broker.kafka)
        with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=WAIT_S) as reply:
            page = reply.read().decode()
    others = _text(_Families(*peer_metrics(PeerMetrics()), *(nats_metrics(NatsMetrics()) if not settings else ())))
    found: Labels = {}
    for text in (page, others, _of_a_collector(), _of_a_pipeline()):
        for family in text_string_to_metric_families(text):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found.setdefault(name, set()).update(*(sample.labels for sample in family.samples))
    found["logboom_stream_offline_partitions"] = {"stream"}  # in place of those of partitions, where there are many
    found["up"] = set()
    return found


def _queries(board: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Panel, query, and the text beside each line."""
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], target["legendFormat"]


def _parts(node: promql.Expr) -> Iterator[promql.Expr]:
    yield node
    for name in ("lhs", "rhs", "expr", "vector_selector"):
        child = getattr(node, name, None)
        if child is not None:
            yield from _parts(child)
    for child in getattr(node, "args", ()):
        yield from _parts(child)


def _check(query: str, known: Labels) -> None:
    selected: set[str] = set()
    asked: set[str] = set()
    for node in _parts(promql.parse(query)):
        if isinstance(node, promql.VectorSelector):
            assert node.name in known, f"nothing on /metrics is called {node.name}"
            matched = {matcher.name for matcher in node.matchers.matchers}
            assert not known[node.name] or matched <= known[node.name] | SCRAPED, f"{node.name} has no such labels"
            selected.add(node.name)
        elif isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            asked |= set(node.modifier.labels)
    assert selected, "it asks for nothing"
    labels = [known[name] for name in selected]
    assert not all(labels) or asked <= set().union(*labels, SCRAPED), f"groups by labels that are not there: {asked}"


def _without_variables(query: str) -> str:
    return query.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$pipeline", ".*")


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_a_dashboard_asks_for_what_is_there(path: Path, known: Labels) -> None:
    board = json.loads(path.read_text())
    assert (board["uid"], board["editable"]) == (f"logboom-{path.stem}", True)
    queries = list(_queries(board))
    assert len(queries) > 10
    for title, query, _ in queries:
        try:
            _check(_without_variables(query), known)
        except (ValueError, AssertionError) as error:
            raise AssertionError(f"{title}: {query}: {error}") from error
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            name, label = variable["definition"].removeprefix("label_values(").removesuffix(")").split(", ")
            assert label in known[name] | SCRAPED


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_panels_do_not_lie_on_each_other(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(path.read_text())["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_alarms_ask_for_what_is_there(known: Labels) -> None:
    groups = YAML(typ="safe").load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        try:
            _check(rule["expr"], known)
        except (ValueError, AssertionError) as error:
            raise AssertionError(f"{rule['alert']}: {error}") from error
        assert set(rule["annotations"]) == {"summary", "description"}


def test_the_scrape_configuration_names_the_jobs_that_alarms_ask_for() -> None:
    config = YAML(typ="safe").load((DEPLOY / "prometheus/prometheus.yml").read_text())
    assert {job["job_name"] for job in config["scrape_configs"]} == {"logboom", "logboom-collector", "logboom-pipeline"}
    assert config["rule_files"] == ["alerts.yml"]
