"""Checkpoint and archive in a real HDFS, over its HTTP: objects that are made once, files for Arrow, and a router that
is killed, loses its machine's files, and whose name node goes away."""

import json
import os
import random
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs
from tests.cli.running import ok
from tests.pipeline.support import RouterProcess, ledger, make_stream, needs_java, publish
from tests.support.hdfs import HdfsServer, running_hdfs
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S, until

from logboom.pipeline.checkpoint.bucket.bucket_mirror import check_conditions
from logboom.pipeline.checkpoint.bucket.hdfs_objects import HdfsObjects
from logboom.pipeline.checkpoint.bucket.objects import TakenError
from logboom.pipeline.hdfs import client as client_module
from logboom.pipeline.hdfs.client import HdfsError, WebHdfs
from logboom.pipeline.plan.stores import StoreRef
from logboom.pipeline.sinks.parquet.reading import ArchiveReader
from logboom.pipeline.sinks.parquet.stores import open_store

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.clients, needs_java]

COUNT = 1_500
PIPELINE = """
name: {name}
checkpoint: {{path: "{url}/checkpoints/{name}", work_dir: ./work}}
batch: {{max_records: 150, interval: 100ms}}
sources:
  web: {{type: stream, stream: {name}-web}}
transforms:
  parsed: {{type: parse, inputs: [web], rules: [{{format: json}}]}}
  once: {{type: dedupe, inputs: [parsed], by: [attributes.id], window: 1d}}
sinks:
  archive: {{type: parquet, inputs: [once], path: "{url}/archives/{name}", interval: 200ms, on_failure: retry}}
"""
MOMENTS = ("pins/batches/*.json", "ledger/*.json", "router/commits/*", "deliveries/archive/query/offsets/*")


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


def test_objects_are_made_once_and_found_again(hdfs: HdfsServer, tmp_path: Path) -> None:
    store = StoreRef(url=f"{hdfs.url}/of objects/ü%")
    objects = HdfsObjects(store, "objects")
    check_conditions(objects)
    assert objects.list("bundles") == []
    objects.put_new("bundles/1", b"first")
    with pytest.raises(TakenError):
        objects.put_new("bundles/1", b"second")
    assert (objects.get("bundles/1"), objects.list("objects")) == (b"first", [])
    objects.put("bundles/1", b"third")
    (tmp_path / "large").write_bytes(os.urandom(3 << 20))
    objects.put_file("objects/a", tmp_path / "large")
    assert objects.get("objects/a") == (tmp_path / "large").read_bytes()
    assert [one.path for one in objects.list("bundles")] == ["bundles/1"]
    objects.delete(["bundles/1", "bundles/none"])
    with pytest.raises(FileNotFoundError):
        objects.get("bundles/1")


def test_one_of_many_who_make_an_object_at_once_has_made_it(hdfs: HdfsServer) -> None:
    objects = HdfsObjects(StoreRef(url=f"{hdfs.url}/raced"), "objects")
    outcomes: list[int | None] = []

    def make(number: int) -> None:
        try:
            objects.put_new("bundles/7", str(number).encode())
            outcomes.append(number)
        except TakenError:
            outcomes.append(None)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    (made,) = [one for one in outcomes if one is not None]
    assert len(outcomes) == 6
    assert objects.get("bundles/7") == str(made).encode()


def test_what_was_removed_before_it_had_its_name_is_not_taken_for_made(
    hdfs: HdfsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that took over removes what the one before it has sent, and has the name itself."""
    store = StoreRef(url=f"{hdfs.url}/swept")
    old, new = HdfsObjects(store, "objects"), HdfsObjects(store, "objects")
    rename = WebHdfs.rename

    def swept(client: WebHdfs, source: str, target: str) -> bool:
        monkeypatch.setattr(WebHdfs, "rename", rename)
        new.delete(one.path for one in new.list("objects"))
        new.put_new("bundles/1", b"new")
        return rename(client, source, target)

    monkeypatch.setattr(WebHdfs, "rename", swept)
    with pytest.raises(TakenError):
        old.put_new("bundles/1", b"old")
    assert old.get("bundles/1") == b"new"


def test_a_name_node_that_restarts_or_takes_nothing_is_waited_for(hdfs: HdfsServer) -> None:
    client = WebHdfs(hdfs.url.replace("127.0.0.1", "127.0.0.1:1,127.0.0.1"))  # the first of two name nodes is not there
    client.create("/waited/a", b"x" * 100)
    restarting = threading.Thread(target=hdfs.restart_name_node)
    restarting.start()
    for number in range(20):
        client.create("/waited/a", b"y" * number)
    restarting.join(WAIT_S)
    assert client.read("/waited/a") == b"y" * 19
    hdfs.set_safe_mode(on=True)
    leaving = threading.Timer(1.0, lambda: hdfs.set_safe_mode(on=False))
    leaving.start()
    assert client.rename("/waited/a", "/waited/b")
    leaving.join(WAIT_S)
    assert client.read("/waited/b", 3, 4) == b"yyyy"


def test_a_file_that_was_sent_is_on_the_disk_of_the_data_node(hdfs: HdfsServer) -> None:
    """Whose own settings do not ask for it (`dfs.datanode.synconclose`)."""
    before = hdfs.syncs()
    WebHdfs(hdfs.url).create("/synced", b"x" * 1_000)
    assert hdfs.syncs() > before


def _has(made: list[int], count: int) -> bool:
    return len(made) >= count


def test_the_other_name_node_goes_on_where_the_active_one_does_not(tmp_path: Path) -> None:
    """With objects that are made at any time of it, by several threads, each once."""
    with running_hdfs(tmp_path, name_nodes=2) as servers:
        objects = HdfsObjects(StoreRef(url=f"{servers.url}/bundles of two"), "objects")
        numbers = iter(range(60))
        made: list[int] = []

        def make() -> None:
            for number in numbers:
                objects.put_new(f"bundles/{number}", str(number).encode())
                made.append(number)

        threads = [threading.Thread(target=make) for _ in range(2)]
        for thread in threads:
            thread.start()
        for active in (1, 0, 1):
            goal = min(len(made) + 6, 60)
            until(partial(_has, made, goal), "objects are made")
            servers.activate(active)
        for thread in threads:
            thread.join(2 * WAIT_S)
        assert sorted(made) == list(range(60))
        assert {one.path for one in objects.list("bundles")} == {f"bundles/{number}" for number in range(60)}
        assert all(objects.get(f"bundles/{number}") == str(number).encode() for number in range(60))
        assert objects.list("objects") == []


def test_requests_go_over_tls_to_a_server_whose_certificate_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, certificate = tmp_path / "keys.p12", tmp_path / "certificate.pem"
    keytool = ["keytool", "-keystore", str(keys), "-storetype", "pkcs12", "-storepass", "changeit", "-alias", "hdfs"]
    subject = ["-genkeypair", "-keyalg", "RSA", "-dname", "CN=hdfs", "-ext", "san=ip:127.0.0.1", "-validity", "2"]
    subprocess.run([*keytool, *subject], check=True, capture_output=True)
    subprocess.run([*keytool, "-exportcert", "-rfc", "-file", str(certificate)], check=True, capture_output=True)
    with running_hdfs(tmp_path, keys=keys) as server:
        assert server.url.startswith("swebhdfs://")
        with pytest.raises(HdfsError, match="certificate verify failed"):
            WebHdfs(server.url).create("/secret", b"x")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        client = WebHdfs(server.url)
        client.create("/secret", b"y" * 10_000)
        assert client.read("/secret") == b"y" * 10_000


def test_a_name_node_that_is_not_there_is_an_error_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_RETRY_S", 0.5)
    with pytest.raises(HdfsError, match=r"127\.0\.0\.1:1: .*refused"):
        WebHdfs("webhdfs://127.0.0.1:1/x").read("/x")


def _die(*_: object) -> None:
    raise OSError("the writer dies here")


def test_a_file_whose_writer_dies_is_not_there(hdfs: HdfsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    files, root = open_store(StoreRef(url=f"{hdfs.url}/of a dead writer"))
    with monkeypatch.context() as patched:
        patched.setattr(WebHdfs, "replace", _die)
        file = files.open_output_stream(f"{root}/manifest.json")
        file.write(b'{"batch": 1}')
        with pytest.raises(OSError, match="dies"):
            file.close()
    found = files.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True))
    assert "manifest.json" not in [one.base_name for one in found]


def test_arrow_reads_and_writes_files(hdfs: HdfsServer) -> None:
    files, root = open_store(StoreRef(url=f"{hdfs.url}/of arrow"))
    data = os.urandom(5 << 20)
    with files.open_output_stream(f"{root}/a/b") as file:
        file.write(data)
    with files.open_input_file(f"{root}/a/b") as file:
        assert file.size() == len(data)
        file.seek(len(data) - 3)
        assert file.read() == data[-3:]
    files.move(f"{root}/a/b", f"{root}/c/d")
    found = files.get_file_info(fs.FileSelector(root, recursive=True))
    assert {(one.path, one.type) for one in found} == {
        (f"{root}/a", fs.FileType.Directory),
        (f"{root}/c", fs.FileType.Directory),
        (f"{root}/c/d", fs.FileType.File),
    }
    assert files.get_file_info([f"{root}/a/b"])[0].type == fs.FileType.NotFound
    with pytest.raises(FileNotFoundError):
        files.open_input_file(f"{root}/a/b")
    files.delete_dir(root)


def _ids(url: str) -> Counter[int]:
    reader = ArchiveReader("", StoreRef(url=url))
    batches = [batch for file in reader.files() for batch in reader.batches(file, ["attributes"])]
    texts = pa.Table.from_batches(batches).column("attributes").to_pylist()
    return Counter(json.loads(text)["id"] for text in texts)


def _wait_for_more(work: Path, moment: str, router: RouterProcess) -> None:
    first = len(list(work.glob(moment)))
    until(lambda: len(list(work.glob(moment))) > first or not router.alive(), f"one more of {moment}", every_s=0.01)
    assert router.alive(), router.log_text()[-3_000:]


def test_kill_9_and_a_name_node_that_restarts_lose_and_repeat_nothing(
    broker: BrokerProcess, hdfs: HdfsServer, tmp_path: Path
) -> None:
    name, work, file = "in-hdfs", tmp_path / "work", tmp_path / "in-hdfs.yaml"
    file.write_text(PIPELINE.format(name=name, url=hdfs.url))
    make_stream(broker.kafka, f"{name}-web", 2)
    publish(
        broker.kafka, f"{name}-web", [json.dumps({"id": number % COUNT}).encode() for number in range(2 * COUNT)], 2
    )
    assert "no errors" in ok("pipeline", "check", str(file), "--connect", bootstrap=broker.kafka).out
    for turn in range(3):
        with RouterProcess(file, broker.kafka) as router:
            until(lambda: (work / "pipeline.json").exists() or not router.alive(), "the checkpoint is ours")
            _wait_for_more(work, "ledger/*.json" if turn == 1 else random.choice(MOMENTS), router)
            if turn == 1:  # at a start it would end the run
                hdfs.restart_name_node()
                _wait_for_more(work, "ledger/*.json", router)
            router.kill9(group=True)
        shutil.rmtree(work)
    with RouterProcess(file, broker.kafka, "--once") as router:
        assert router.wait() == 0, router.log_text()[-3_000:]
    total = ledger(work)["total"]
    assert total["records_in"] == {"web": 2 * COUNT}
    assert total["dropped"]["once"] == COUNT
    assert _ids(f"{hdfs.url}/archives/{name}") == dict.fromkeys(range(COUNT), 1)
    shutil.rmtree(work)
    volume = ok("pipeline", "volume", str(file), "--since", "1d", "--json", bootstrap=broker.kafka).json
    assert volume["ledger"]["records_in"] == {"web": 2 * COUNT}
