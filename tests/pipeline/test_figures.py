"""What a person asks of a pipeline that has run: `volume`, `compare` and `graph --live`, from a real broker."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import logboom, ok, refused
from tests.pipeline.support import Said, make_stream, needs_java, publish, records
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.run.runner import Runner, RunOptions

pytestmark = [pytest.mark.spark, needs_java]

FILE = """
name: asked
sources:
  web: {type: stream, stream: asked-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}], drop: {health: "line LIKE '%health%'"}}
  sampled: {type: sample, inputs: [parsed], rate: {dial: noise, default: 4, min: 1, max: 100}, key: event_id}
sinks:
  copy: {type: stream, inputs: [parsed], stream: asked-copy}
  archive: {type: parquet, inputs: [parsed], path: ./archive, partition_by: [service]}
  few: {type: stream, inputs: [sampled], stream: asked-few}
  screen: {type: console, inputs: [sampled], limit: 1}
"""
LINES = 200


def _line(number: int) -> bytes:
    if number % 10 == 0:
        return b'{"msg": "GET /health"}'
    if number == 11:
        return b'{"cut": '
    return json.dumps({"service": "shop" if number % 2 else "cart", "msg": f"{number} bought"}).encode()


def test_a_pipeline_is_asked_for_its_figures(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    bootstrap, file = broker.kafka, tmp_path / "asked.yaml"
    file.write_text(FILE)
    call = ("pipeline", "volume", str(file))
    assert "the pipeline has never run" in refused(*call, bootstrap=bootstrap)
    make_stream(bootstrap, "asked-web", 2)
    publish(bootstrap, "asked-web", [_line(number) for number in range(LINES)], 2)
    plan = compile_pipeline(FILE, str(file))
    Runner(plan, RunOptions(bootstrap=bootstrap, once=True), Said()).run_in(spark)
    events, few = LINES - LINES // 10 - 1, len(records(bootstrap, "asked-few"))

    volume = ok(*call, "--json", bootstrap=bootstrap).json
    counts = volume["ledger"]
    assert (counts["records_in"], counts["dead"]["parsed"]) == ({"web": LINES}, 1)
    assert counts["dropped"] == {"parsed.health": LINES // 10, "sampled": events - few}
    routes = {(one["route"], *one["sinks"]): one["events"] for one in volume["routes"]}
    wanted = {("parsed", "copy"): events, ("parsed", "archive"): events}
    assert routes == wanted | {("sampled", "few"): few, ("sampled", "screen"): few}
    assert sum(one["bytes"] for one in volume["routes"]) == sum(counts["out_bytes"].values()) > 0
    (saving,) = (one for one in volume["savings"] if one["dial"] == "noise")
    assert (saving["value"], saving["events"]) == (4, events - few)
    services = {(one["sink"], one["service"]): one["events"] for one in volume["services"]}
    assert services["copy", "shop"] == services["archive", "shop"] == LINES // 2 - 1
    assert services["copy", "cart"] == services["archive", "cart"] == events - (LINES // 2 - 1)
    shown = ok(*call, bootstrap=bootstrap)
    assert f"{LINES} records in" in shown.out
    assert "noise" in shown.out
    assert ["out", "sampled", "few", str(few)] in [line.split()[:4] for line in shown.out.splitlines()]
    assert (
        "not counted by service: screen is neither a JSON stream without credentials nor a Parquet archive" in shown.err
    )

    compare = ("pipeline", "compare", str(file))
    time.sleep(0.01)  # `--settle` leaves out what is younger
    same = ok(*compare, "copy", "archive", "--settle", "1ms", "--json", bootstrap=bootstrap).json_lines
    assert [(one["sink"], one["events"], one["repeats"], one["lacks"]) for one in same] == [
        ("copy", events, 0, 0),
        ("archive", events, 0, 0),
    ]
    assert same[0]["latency_max_ms"] >= same[0]["latency_p50_ms"] >= 0
    assert same[1]["latency_p50_ms"] is None, "an archive does not say when an event came"
    other = logboom(*compare, "copy", "few", "--settle", "1ms", bootstrap=bootstrap)
    assert (other.code, other.out.count("few lacks asked-web:")) == (1, min(20, events - few))
    assert (f"few lacks {events - few - 20:,} more" in other.out) == (events - few > 20)
    told = logboom(*compare, "copy", "screen", bootstrap=bootstrap)
    assert told.code == 1
    assert "screen: 0 events not delivered yet, 0 dead letters" in told.out
    assert "screen cannot be read back from here" in told.err
    assert "compared with itself" in refused(*compare, "copy", "copy", bootstrap=bootstrap)
    assert "did you mean 'archive'?" in refused(*compare, "copy", "archiv", bootstrap=bootstrap)

    live = ok("pipeline", "graph", str(file), "--live", bootstrap=bootstrap).out
    for words in ("web (stream)", "lag 0", "1 dead letter", "events/s", "sampled (sample)"):
        assert words in live
    admin = StreamAdmin(bootstrap)  # kept until it has answered
    for done in admin.delete_before({("asked-copy", number): 1 for number in range(2)}).values():
        done.result(WAIT_S)
    cut = logboom(*compare, "copy", "archive", "--settle", "1ms", bootstrap=bootstrap)
    assert (cut.code, cut.out.count("copy lacks asked-web:")) == (1, 2)
