"""Requests to name nodes, which are stubs here: which of them is asked, as whom, and what becomes of their refusals."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.support.waiting import WAIT_S

from logboom.pipeline.checkpoint.bucket.hdfs_objects import HdfsObjects
from logboom.pipeline.checkpoint.bucket.objects import StoreError
from logboom.pipeline.hdfs import client as client_module
from logboom.pipeline.hdfs import tokens
from logboom.pipeline.hdfs.client import HdfsError, WebHdfs
from logboom.pipeline.plan.stores import StoreRef

IDENTIFIER = bytes(range(200))
WRITABLE = (
    b"HDTS\0\x02\r10.0.0.1:8020\x8f\xc8" + IDENTIFIER + b"\x02pw\x15HDFS_DELEGATION_TOKEN\r10.0.0.1:8020"
    b"\x05other\x01\x01\x01\x02\x10YARN_AM_RM_TOKEN\x01x\x01\x01s\x01\t"
)
PROTOBUF = (
    b"HDTS\x01\xb8\x02\n\x87\x02\n\r10.0.0.1:8020\x12\xf5\x01\n\xc8\x01"
    + IDENTIFIER
    + b"\x12\x02pw\x1a\x15HDFS_DELEGATION_TOKEN"
    b'"\r10.0.0.1:8020\n$\n\x05other\x12\x1b\n\x01\x01\x12\x01\x02\x1a\x10YARN_AM_RM_TOKEN"\x01x\x12\x06\n\x01s\x1a\x01\t'
)
"""As Hadoop 3.5 writes the same two tokens and a secret."""
URL_TEXT_BEGIN, URL_TEXT_END = "j8gAAQIDBAUG", "RFTEVHQVRJT05fVE9LRU4NMTAuMC4wLjE6ODAyMA"

Answer = tuple[int, object]
Answering = Callable[[str, str, dict[str, str]], Answer]
"""From the method, the path and the options of a request."""


def refused(status: int, exception: str, message: str) -> Answer:
    return status, {"RemoteException": {"exception": exception, "message": message}}


STANDBY = refused(403, "StandbyException", "Operation category READ is not supported in state standby")
EMPTY_DIRECTORY = {"type": "DIRECTORY", "length": 0, "modificationTime": 0}


@contextmanager
def name_node(answering: Answering) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            parts = urlsplit(self.path)
            options = {name: value[0] for name, value in parse_qs(parts.query).items()}
            status, given = answering(self.command, parts.path.removeprefix("/webhdfs/v1"), options)
            said = json.dumps(given).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_PUT = do_DELETE = _answer  # noqa: N815 - names of the library

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join(WAIT_S)
        server.server_close()


def status_of(path: str) -> Answer:
    return 200, {"FileStatus": EMPTY_DIRECTORY}


def test_many_threads_go_on_to_the_active_name_node_together() -> None:
    """Each of them finds the first one on standby; none takes the others back to it."""
    threads_count, asked = 8, {"first": 0, "second": 0}
    together = threading.Barrier(threads_count)

    def on_standby(_: str, __: str, ___: dict[str, str]) -> Answer:
        asked["first"] += 1
        together.wait(WAIT_S)
        return STANDBY

    def active(_: str, path: str, ___: dict[str, str]) -> Answer:
        asked["second"] += 1
        return status_of(path)

    with name_node(on_standby) as first, name_node(active) as second:
        client = WebHdfs(f"webhdfs://{first},{second}/x")
        found: list[object] = []
        threads = [threading.Thread(target=lambda: found.append(client.status("/x"))) for _ in range(threads_count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert len(found) == threads_count
        assert asked == {"first": threads_count, "second": threads_count}
        client.status("/x")
        assert asked == {"first": threads_count, "second": threads_count + 1}


def test_of_two_name_nodes_that_say_they_are_active_one_is_asked_until_it_does_not_answer() -> None:
    """While the one that was active has not noticed that it is not: what it is asked, it is asked alone."""
    asked: list[str] = []
    is_cut_off = threading.Event()

    def first(_: str, path: str, __: dict[str, str]) -> Answer:
        asked.append("first")
        return refused(500, "IOException", "no quorum of journal nodes") if is_cut_off.is_set() else status_of(path)

    def second(_: str, path: str, __: dict[str, str]) -> Answer:
        asked.append("second")
        return status_of(path)

    with name_node(first) as one, name_node(second) as other:
        client = WebHdfs(f"webhdfs://{one},{other}/x")
        for _ in range(3):
            client.status("/x")
        is_cut_off.set()
        for _ in range(3):
            client.status("/x")
    assert asked == ["first"] * 4 + ["second"] * 3


def test_a_name_node_that_sends_to_data_nodes_while_it_is_on_standby_is_left() -> None:
    """As Hadoop's do: the data node is refused, with what the name node would have said."""
    taken: list[str] = []

    def take(command: str, path: str, options: dict[str, str]) -> Answer:
        taken.append(path)
        return 201, {}

    with name_node(lambda *_: STANDBY) as refusing, name_node(take) as taking:
        places = {"standby": f"http://{refusing}/webhdfs/v1/x", "active": f"http://{taking}/webhdfs/v1/x"}
        with (
            name_node(lambda *_: (200, {"Location": places["standby"]})) as first,
            name_node(lambda *_: (200, {"Location": places["active"]})) as second,
        ):
            WebHdfs(f"webhdfs://{first},{second}/x").create("/x", b"1")
    assert taken == ["/x"]


def test_what_both_have_not_at_once_is_made_once() -> None:
    """A rename that the first one did and did not answer is found done by the second."""
    files = {"/x/sent": b"1"}

    def answering(*, answers: bool) -> Answering:
        def one(method: str, path: str, options: dict[str, str]) -> Answer:
            if options["op"] == "GETFILESTATUS":
                there = path in files
                return status_of(path) if there else refused(404, "FileNotFoundException", path)
            is_done = path in files and options["destination"] not in files
            if is_done:
                files[options["destination"]] = files.pop(path)
            return (200, {"boolean": is_done}) if answers else STANDBY

        return one

    with name_node(answering(answers=False)) as one, name_node(answering(answers=True)) as other:
        assert WebHdfs(f"webhdfs://{one},{other}/x").rename("/x/sent", "/x/made") is False
    assert files == {"/x/made": b"1"}


@pytest.mark.parametrize("content", [WRITABLE, PROTOBUF, None])
def test_requests_go_with_the_token_that_the_environment_names(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, str]] = []

    def answering(_: str, path: str, options: dict[str, str]) -> Answer:
        seen.append(options)
        return status_of(path)

    file = tmp_path / "token"
    file.write_bytes(b"first-text_of-it==\n" if content is None else content)
    monkeypatch.setenv(tokens.FILE_VARIABLE, str(file))
    with name_node(answering) as place:
        client = WebHdfs(f"webhdfs://{place}/x")
        client.status("/x")
        file.write_bytes(b"another")
        client.status("/x")
    assert [options.get("user.name") for options in seen] == [None, None]
    first, second = (options["delegation"] for options in seen)
    assert second == "another"
    if content is None:
        assert first == "first-text_of-it=="
    else:
        assert first.startswith(URL_TEXT_BEGIN)
        assert first.endswith(URL_TEXT_END)


@pytest.mark.parametrize(
    "content", [b"", b"HDTS", b"HDTS\x02x", WRITABLE[:-40], PROTOBUF[:60], b"a token", b"\xff" * 9]
)
def test_a_file_without_a_token_is_told_by_its_name(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    monkeypatch.setenv(tokens.FILE_VARIABLE, str(file))
    with pytest.raises(HdfsError, match="token has no delegation token of HDFS"):
        WebHdfs("webhdfs://127.0.0.1:1/x").status("/x")
    file.unlink()
    objects = HdfsObjects(StoreRef(url="webhdfs://127.0.0.1:1/x"), "objects")
    with pytest.raises(StoreError, match=f"{tokens.FILE_VARIABLE} .*token: No such file"):
        objects.get("bundles/1")


def test_a_cluster_that_asks_for_kerberos_is_told_what_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(tokens.FILE_VARIABLE, raising=False)
    monkeypatch.setattr(client_module, "_RETRY_S", 0.0)
    with (
        name_node(lambda *_: (401, "Authentication required")) as place,
        pytest.raises(HdfsError, match=f"refuses the user .*{tokens.FILE_VARIABLE} names a file with a valid token"),
    ):
        WebHdfs(f"webhdfs://{place}/x").status("/x")
