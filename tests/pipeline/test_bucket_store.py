"""The client of a checkpoint in a bucket over a real S3 server: what the rules of bundles rest on, and what is said
where a server is away, has no such bucket, or does not know the key."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.s3 import BUCKET, IDENTITY, S3Server, running_s3

from logboom.pipeline.checkpoint.bucket import objects as client
from logboom.pipeline.checkpoint.bucket.bucket_mirror import BucketMirror, check_conditions
from logboom.pipeline.checkpoint.bucket.objects import ObstoreObjects, StoreError, TakenError
from logboom.pipeline.checkpoint.bucket.working_tree import ROUTER_AREA
from logboom.pipeline.plan.stores import StoreRef

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    pytest.importorskip("obstore")
    with running_s3(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as patched:
        for name, value in IDENTITY.items():
            patched.setenv(name, value)
        yield server


def _objects(s3: S3Server, prefix: str, bucket: str = BUCKET) -> ObstoreObjects:
    return ObstoreObjects(StoreRef(url=f"s3://{bucket}/{prefix}", endpoint=s3.endpoint, region="us-east-1"))


def test_objects_are_made_once_read_listed_and_removed(s3: S3Server, tmp_path: Path) -> None:
    objects, file = _objects(s3, "once"), tmp_path / "large"
    file.write_bytes(bytes(7 << 20))
    objects.put_new("bundles/1", b"first")
    with pytest.raises(TakenError):
        objects.put_new("bundles/1", b"second")
    objects.put_file("objects/x", file)
    objects.put("retried.json", b"1")
    objects.put("retried.json", b"2")
    assert (objects.get("bundles/1"), objects.get("retried.json")) == (b"first", b"2")
    assert len(objects.get("objects/x")) == 7 << 20
    assert [one.path for one in objects.list("bundles")] == ["bundles/1"]
    with pytest.raises(FileNotFoundError):
        objects.get("bundles/2")
    objects.delete(["bundles/1", "bundles/2"])
    assert objects.list("bundles") == []
    check_conditions(objects)


def test_a_checkpoint_goes_from_one_machine_to_the_next(s3: S3Server, tmp_path: Path) -> None:
    objects, first, second = _objects(s3, "pipelines/shop"), tmp_path / "first", tmp_path / "second"
    mirror, ledger = BucketMirror(objects, first), first / "ledger"
    mirror.open(threading.Event())
    ledger.mkdir()
    for number in range(70):
        (ledger / f"{number}.json").write_bytes(b"%d" % number)
        mirror.save(ROUTER_AREA)
    mirror.close(ended=True)
    BucketMirror(objects, second).look()
    assert {path.name for path in (second / "ledger").iterdir()} == {f"{number}.json" for number in range(70)}


def test_what_is_wrong_is_said_without_a_secret(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_TRIES", 1)
    with pytest.raises(StoreError, match="there is no such bucket"):
        _objects(s3, "x", bucket="nowhere").put_new("bundles/1", b"")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-right-secret")
    with pytest.raises(StoreError, match="s3://logs/x: put bundles/1: ") as caught:
        _objects(s3, "x").put_new("bundles/1", b"")
    assert "not-the-right-secret" not in str(caught.value)
    gone = StoreRef(url="s3://logs/x", endpoint="http://127.0.0.1:9", region="us-east-1")
    with pytest.raises(StoreError, match="s3://logs/x: get bundles/1: "):
        ObstoreObjects(gone).get("bundles/1")
