"""Events at an output as they come, and events of the past once more into one sink."""

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import ok, refused
from tests.pipeline.archived import FILE, Archived, line, run_replay
from tests.pipeline.support import (
    RouterProcess,
    Said,
    archive_ids,
    descendants,
    header,
    ledger,
    make_stream,
    needs_java,
    publish,
    records,
)
from tests.support.s3 import BUCKET, IDENTITY, running_s3
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S, until

from logboom.pipeline.checkpoint.spark_log import first_offsets
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.event.json import json_values
from logboom.pipeline.event.schema import LIVE_SCHEMA
from logboom.pipeline.run.replay import directory_of, log_part_directory, remembered
from logboom.pipeline.run.runner import Runner, RunOptions
from logboom.pipeline.sinks.parquet.reading import ArchiveReader

pytestmark = [pytest.mark.spark, needs_java]


def _events(broker: BrokerProcess, stream: str) -> list[dict[str, Any]]:
    return [json.loads(message.value()) for message in records(broker.kafka, stream)]


@pytest.fixture
def file(broker: BrokerProcess, tmp_path: Path) -> Path:
    path = tmp_path / "past.yaml"
    path.write_text(FILE)
    return path


@pytest.mark.slow
def test_the_past_goes_once_more_into_one_sink(broker: BrokerProcess, file: Path) -> None:
    bootstrap = broker.kafka
    make_stream(bootstrap, "past-web", 2)
    publish(bootstrap, "past-web", [line(number) for number in range(20)], 2)
    call = ("pipeline", "replay", str(file), "--sink")
    assert "has no sink 'erors' (did you mean 'errors'?)" in refused(
        *call, "erors", "--from", "1h", bootstrap=bootstrap
    )
    assert "--where service >: Syntax error at or near end of input (line 1 of the" in refused(
        *call, "errors", "--from", "1h", "--where", "service >", bootstrap=bootstrap
    )
    assert "there is no replay 'gone'" in refused(
        "pipeline", "replay", str(file), "--resume", "gone", bootstrap=bootstrap
    )
    chosen = (*call, "errors", "--from", "1h", "--where", "service = 'cart'")
    told = ok(*chosen, "--dry-run", "--json", bootstrap=bootstrap).json
    assert (told["records"], told["events"]) == (20, 5)
    assert _events(broker, "past-errors") == []

    name = run_replay(bootstrap, *chosen, "--rate", "1000").split("replay ")[1].split(":")[0]
    events = _events(broker, "past-errors")
    assert sorted(event["body"] for event in events) == sorted(f"{number} of [email]" for number in range(11, 20, 2))
    assert {event["attributes"]["logboom.replay"] for event in events} == {name}
    assert {header(message, "logboom-event-id") for message in records(bootstrap, "past-errors")} == {
        event["event_id"] for event in events
    }

    # What came behind it is not of this replay.
    publish(bootstrap, "past-web", [line(number) for number in range(20, 30)], 2)
    again = ("pipeline", "replay", str(file), "--resume", name)
    assert "only --rate may be changed" in refused(*again, "--from", "2h", bootstrap=bootstrap)
    run_replay(bootstrap, *again, "--rate", "2000")
    assert remembered(file.parent / "checkpoints/past", name).events_per_s == 2_000
    assert len(_events(broker, "past-errors")) == 5

    ids = file.parent / "ids"
    ids.write_text("".join(f"{event['event_id']}\n" for event in events[:2]))
    run_replay(bootstrap, *call, "archive", "--from", "1h", "--ids", str(ids))
    assert set(archive_ids(file.parent / "archive")) == {event["event_id"] for event in events[:2]}


NEW = """
name: new
sources:
  web: {type: stream, stream: past-web}
transforms:
  read: {type: parse, inputs: [web], rules: [{format: json}]}
  named: {type: reshape, inputs: [read], set: {attributes.team: "concat('team of ', service)"}}
  kept: {type: filter, inputs: [named], condition: "severity_number < 17"}
sinks:
  rest: {type: stream, inputs: [kept], stream: new-rest}
  all: {type: parquet, inputs: [named], path: ./new-archive}
"""


def test_an_archive_goes_on_behind_the_output_that_it_holds(broker: BrokerProcess, tmp_path: Path, spark: Any) -> None:
    past = Archived(broker, tmp_path, "kept", spark)
    written = {event["event_id"]: event for event in _events(broker, "kept-errors")}
    assert len(written) == 10

    call = ("pipeline", "replay", str(past.file), "--from", "1h", "--dry-run")
    told = ok(*call, "--sink", "errors", "--from-log", bootstrap=past.bootstrap)
    assert "0 events of 0 records" in told.out
    assert "events are read from the log: as requested" in told.err
    both = ("--from-log", "--archive", "archive")
    wrong = refused(*call, "--sink", "errors", *both, bootstrap=past.bootstrap)
    assert "--archive, --from-log and --partial exclude each other" in wrong
    told = ok(*call, "--sink", "errors", "--archive", "archive", "--rate", "5", "--json", bootstrap=past.bootstrap)
    assert (told.json["records"], told.json["events"], told.json["seconds"]) == (20, 10, 4.0)
    archived = ArchiveReader(str(tmp_path / "archive"))
    texts = [json_values(events) for file in archived.files() for events in archived.batches(file, LIVE_SCHEMA.names)]
    assert told.json["loaded_bytes"] >= sum(len(text.as_py()) for part in texts for text in part) > 0
    assert "has a sink of type stream, which cannot be read back, and not an archive 'errors'" in refused(
        *call, "--sink", "errors", "--archive", "errors", bootstrap=past.bootstrap
    )

    past.replay(past.plan, sink="errors", where="service = 'cart'")
    events = _events(broker, "kept-errors")[10:]
    assert len(events) == 5
    for event in events:
        assert event["attributes"].pop("logboom.replay") == "r1"
        assert event == written[event["event_id"]], "all else is as it was"


@pytest.mark.slow
@pytest.mark.parametrize("deleted", [6, 10])
def test_what_the_log_has_deleted_comes_from_the_archive(
    broker: BrokerProcess, tmp_path: Path, spark: Any, deleted: int
) -> None:
    """Each event once, also at the seam between the two; nothing is chosen where neither is known to have all."""
    name, left, gone = f"seamed{deleted}", 20 - 2 * deleted, 2 * deleted
    past = Archived(broker, tmp_path, name, spark, deleted)
    written = {event["event_id"] for event in _events(broker, f"{name}-errors")}
    call = ("pipeline", "replay", str(past.file), "--sink", "errors", "--from", "1h")
    told = ok(*call, "--dry-run", "--json", bootstrap=past.bootstrap)
    assert (told.json["from_log"], told.json["from_archive"], told.json["events"]) == (left, gone, 10)
    assert "events are read from the log and, for the time before its start, an archive: " in told.err
    assert (
        f"the log has deleted older records of {name}-web, and archive has {gone} events of that time before it"
        in told.err
    )
    said = ok(*call, "--dry-run", bootstrap=past.bootstrap).out
    assert f"10 events of {left} records and {gone} archived events" in said

    begun = run_replay(past.bootstrap, *call).split("replay ")[1].split(":")[0]
    marked = [event for event in _events(broker, f"{name}-errors") if "logboom.replay" in event["attributes"]]
    assert Counter(event["event_id"] for event in marked) == Counter(written)
    assert {event["attributes"]["logboom.replay"] for event in marked} == {begun}
    assert not list(_held(past.bootstrap, f"_{name}.replay.")), "the streams of both parts are gone"
    part = log_part_directory(directory_of(tmp_path / "checkpoints" / name, begun)) / "router"
    assert first_offsets(part) == {f"{name}-web": {0: deleted, 1: deleted}}, (
        "where the seam is, whatever is deleted meanwhile"
    )

    for file in (tmp_path / "archive").rglob("*.parquet"):
        file.unlink()
    wrong = refused(*call, "--dry-run", bootstrap=past.bootstrap)
    assert (
        f"the archive archive may lack all of {name}-web/0 before offset {deleted}, all of {name}-web/1 before" in wrong
    )
    assert "--partial replays what there is" in wrong
    rest = ok(*call, "--dry-run", "--partial", "--json", bootstrap=past.bootstrap).json
    assert (rest["from_log"], rest["from_archive"], rest["events"]) == (left, 0, left // 2)


def test_an_archive_that_the_log_has_no_room_for_goes_through_it_slice_by_slice(
    broker: BrokerProcess, tmp_path: Path, spark: Any
) -> None:
    """A transform that remembers knows in one slice what it saw in those before."""
    past = Archived(broker, tmp_path, "sliced", spark)
    known = "once: {type: dedupe, inputs: [masked], by: [service], window: 1h}"
    file = FILE.replace("past", "sliced").replace("inputs: [masked], routes", "inputs: [once], routes")
    past.file.write_text(file.replace("  split:", f"  {known}\n  split:"))
    past.plan = compile_pipeline(past.file.read_text(), str(past.file))
    counting = ("pipeline", "replay", str(past.file), "--sink", "errors", "--from", "1h", "--dry-run", "--json")
    told = ok(*counting, bootstrap=past.bootstrap)
    assert (told.json["from_log"], told.json["from_archive"]) == (0, 20)
    assert "events are read from an archive only: " in told.err
    assert "and once would lose its state between archive and log" in told.err
    replayed, said = past.replay(past.plan, sink="errors", room_bytes=1)
    stream = replayed.sources[0].streams[0]
    assert [told for told in said.lines if "events of the archive are loaded" in told] == [
        f"10 events of the archive are loaded into {stream}, 10 more will follow",
        f"10 events of the archive are loaded into {stream}",
    ]
    total = ledger(tmp_path / replayed.checkpoint)["total"]
    assert (total["records_in"], total["dropped"]["once"]) == ({"archived": 20}, 18), "one of each service stays"
    admin = StreamAdmin(past.bootstrap)
    there = {stream: admin.partitions()[stream]}
    starts, ends = admin.starts(there)[stream], admin.ends(there)[stream]
    assert (sum(starts.values()), sum(ends.values())) == (10, 20), "the first slice is not in the log any more"


@pytest.mark.slow
@pytest.mark.clients
def test_an_archive_in_an_object_store_goes_once_more_into_a_sink(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the commands alone; the log does not hold the records any more, and the server of the store is killed."""
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)
    bootstrap, count, file = broker.kafka, 400, tmp_path / "cloud.yaml"
    make_stream(bootstrap, "cloud-web", 2)
    publish(bootstrap, "cloud-web", [line(number) for number in range(count)], 2)
    with running_s3(tmp_path) as s3:
        place = f"path: s3://{BUCKET}/past, endpoint: '{s3.endpoint}', region: us-east-1"
        file.write_text(FILE.replace("past", "cloud").replace("path: ./archive", place))
        with RouterProcess(file, bootstrap, "--once") as router:
            assert router.wait() == 0, router.log_text()[-3_000:]
        written = {event["event_id"] for event in _events(broker, "cloud-errors")}
        assert len(written) == count // 2
        admin = StreamAdmin(bootstrap)
        for done in admin.delete_before({("cloud-web", number): count // 2 for number in range(2)}).values():
            done.result(WAIT_S)
        call = ("--archive", "archive", "--sink", "errors", "--from", "1h")
        counted = ok("pipeline", "replay", str(file), *call, "--dry-run", "--json", bootstrap=bootstrap).json
        assert (counted["records"], counted["events"]) == (count, count // 2)
        s3.kill9()
        with RouterProcess(file, bootstrap, *call, command="replay") as router:
            assert router.wait() == 1
            assert "the archive cannot be copied to _cloud.replay." in router.log_text()
        (begun,) = (tmp_path / "checkpoints" / "cloud" / "replays").iterdir()
        s3.start()
        with RouterProcess(file, bootstrap, "--resume", begun.name, command="replay") as router:
            assert router.wait() == 0, router.log_text()[-3_000:]
    marked = [event for event in _events(broker, "cloud-errors") if "logboom.replay" in event["attributes"]]
    assert Counter(event["event_id"] for event in marked) == Counter(written)


@pytest.mark.slow
def test_an_archive_goes_into_a_new_pipeline(broker: BrokerProcess, tmp_path: Path, spark: Any) -> None:
    past = Archived(broker, tmp_path, "older", spark)
    file = tmp_path / "new.yaml"
    file.write_text(NEW)
    into = ("--archive", "archive", "--into", str(file), "--from", "1h", "--dry-run")
    told = ok("pipeline", "replay", str(past.file), *into, bootstrap=past.bootstrap)
    assert "30 events of 20 archived events" in told.out
    assert "10 to rest" in told.out
    wrong = refused("pipeline", "replay", str(past.file), *into, "--at", "reed", bootstrap=past.bootstrap)
    assert "the pipeline new has no output 'reed' (did you mean 'read'?)" in wrong

    replayed, said = past.replay(compile_pipeline(NEW, str(file)))
    assert "20 events of the archive are loaded into _new.replay.r1.-archived" in said.lines
    rest = _events(broker, "new-rest")
    assert sorted(event["body"] for event in rest) == sorted(f"{number} of [email]" for number in range(0, 20, 2))
    assert {event["attributes"]["team"] for event in rest} == {"team of shop", "team of cart"}
    assert {event["stream"] for event in rest} == {"older-web"}, "origins are those of the records"
    ids = archive_ids(tmp_path / "new-archive")
    assert (len(ids), set(ids.values())) == (20, {1})
    assert ledger(tmp_path / replayed.checkpoint)["total"]["records_in"] == {"archived": 20}


def _killed(router: RouterProcess, is_so_far: Callable[[], bool], what: str) -> None:
    """Kills a replay, its JVM and its workers at a moment that is waited for."""
    until(lambda: is_so_far() or not router.alive(), what)
    assert router.alive(), router.log_text()[-3_000:]
    router.kill9(group=True)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["log", "archive", "both"])
def test_a_replay_that_is_killed_goes_on_without_a_loss(
    broker: BrokerProcess, tmp_path: Path, spark: Any, source: str
) -> None:
    """Killed while an archive is loaded, and while events go out; another one of its name is refused meanwhile."""
    name, count, bootstrap = f"cut-{source}", 3_000, broker.kafka
    file = tmp_path / f"{name}.yaml"
    file.write_text(FILE.replace("past", name))
    make_stream(bootstrap, f"{name}-web", 2)
    publish(bootstrap, f"{name}-web", [line(number, " x" * 200) for number in range(count)], 2)
    plan = compile_pipeline(file.read_text(), str(file))
    Runner(plan, RunOptions(bootstrap=bootstrap, once=True), Said()).run_in(spark)
    written = {event["event_id"] for event in _events(broker, f"{name}-errors")}
    assert len(written) == count // 2

    replays = tmp_path / "checkpoints" / name / "replays"

    def begun() -> Path:
        (one,) = replays.iterdir()
        return one

    def batches() -> int:
        return len([*replays.glob("*/ledger/*.json"), *replays.glob("*/log/ledger/*.json")])

    if source == "both":
        admin = StreamAdmin(bootstrap)  # kept until it has answered
        for done in admin.delete_before({(f"{name}-web", number): count // 4 for number in range(2)}).values():
            done.result(WAIT_S)
    begin = ("--sink", "errors", "--from", "1h", "--rate", "400")
    archive = ("--archive", "archive", "--room", "1MiB") if source == "archive" else ()
    with RouterProcess(file, bootstrap, *begin, *archive, command="replay") as router:
        if archive:
            loading = f"_{name}.replay."
            _killed(router, lambda: any(_held(bootstrap, loading)), "a load of the archive")
            assert json.loads((begun() / "load.json").read_text())["is_loading"]
        else:
            _killed(router, lambda: batches() > 0, "a batch")
    again = ("--resume", begun().name)
    with RouterProcess(file, bootstrap, *again, command="replay") as router:
        before = batches()
        until(lambda: batches() > before or not router.alive(), "a batch")
        os.kill(router.process.pid, signal.SIGSTOP)  # it is not to end before the other has been refused
        told = refused("pipeline", "replay", str(file), *again, bootstrap=bootstrap)
        assert "is in use by another process" in told
        router.kill9(group=True)
    with RouterProcess(file, bootstrap, *again, command="replay") as router:
        assert router.wait() == 0, router.log_text()[-3_000:]
        assert source == "log" or "events of the archive are loaded" in router.log_text(), "of the second slice, or all"
    marked = [event for event in _events(broker, f"{name}-errors") if "logboom.replay" in event["attributes"]]
    assert {event["event_id"] for event in marked} == written
    assert {event["attributes"]["logboom.replay"] for event in marked} == {begun().name}
    assert not list(_held(bootstrap, f"_{name}.replay.")), "its own streams are gone"


def test_a_replay_goes_on_with_another_jvm(broker: BrokerProcess, tmp_path: Path) -> None:
    """In the same process, as the replay that it was."""
    count, bootstrap, file = 400, broker.kafka, tmp_path / "ended.yaml"
    file.write_text(FILE.replace("past", "ended"))
    make_stream(bootstrap, "ended-web", 2)
    publish(bootstrap, "ended-web", [line(number) for number in range(count)], 2)
    replays = tmp_path / "checkpoints" / "ended" / "replays"
    call = ("--sink", "errors", "--from", "1h", "--rate", "100")
    with RouterProcess(file, bootstrap, *call, command="replay") as router:
        until(lambda: any(replays.glob("*/ledger/*.json")) or not router.alive(), "a batch")
        (jvm,) = (pid for pid in descendants(router.process.pid) if pid != router.process.pid and os.getsid(pid) == pid)
        os.kill(jvm, signal.SIGKILL)
        assert router.wait() == 0, router.log_text()[-3_000:]
        assert router.log_text().count("nothing is lost: the run restarts Spark in 1 s, with the same batch") == 1
    (begun,) = replays.iterdir()
    events = _events(broker, "ended-errors")
    assert {event["attributes"]["logboom.replay"] for event in events} == {begun.name}
    assert len({event["event_id"] for event in events}) == count // 2
    assert not list(_held(bootstrap, "_ended.replay.")), "its own streams are gone"


def _held(bootstrap: str, part: str) -> Iterator[int]:
    """Records of each stream with this in its name."""
    admin = StreamAdmin(bootstrap)
    there = {stream: count for stream, count in admin.partitions().items() if part in stream}
    for partitions in admin.ends(there).values():
        yield sum(partitions.values())


def test_a_tap_shows_what_comes_to_an_output(broker: BrokerProcess, file: Path) -> None:
    bootstrap = broker.kafka
    known = "seen: {type: dedupe, inputs: [masked], window: 1h}"
    file.write_text(FILE.replace("past", "tapped").replace("inputs: [masked], routes", "inputs: [seen], routes"))
    file.write_text(file.read_text().replace("  split:", f"  {known}\n  split:"))
    make_stream(bootstrap, "tapped-web", 2)
    assert "has no output 'split.erors' (did you mean 'split.errors'?)" in refused(
        "pipeline", "tap", str(file), "split.erors", bootstrap=bootstrap
    )
    ended = threading.Event()

    def keep_publishing() -> None:
        while not ended.is_set():
            publish(bootstrap, "tapped-web", [line(number) for number in range(10)], 2)
            time.sleep(0.2)  # a tap begins with what comes after it, and says nothing of its beginning

    writer = threading.Thread(target=keep_publishing)
    writer.start()
    try:
        ran = ok("pipeline", "tap", str(file), "split.errors", "--count", "3", "--json", bootstrap=bootstrap)
    finally:
        ended.set()
        writer.join()
    events = ran.json_lines
    assert len(events) == 3
    assert {event["severity_number"] for event in events} == {17}
    assert all(event["body"].endswith("of [email]") for event in events)
    counted = ("pipeline", "replay", str(file), "--sink", "errors", "--from", "1h", "--dry-run", "--json")
    told = ok(*counted, "--where", "body LIKE '1 %'", bootstrap=bootstrap).json
    assert told["records"] == 10 * told["events"] > 0
    quiet = ok("pipeline", "tap", str(file), "parsed", "--for", "1s", bootstrap=bootstrap)
    assert quiet.out == ""
    assert "shows new events of " in quiet.err
