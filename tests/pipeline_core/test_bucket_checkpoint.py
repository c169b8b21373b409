"""A checkpoint in a bucket against a model of one: what comes back is what was saved, whatever is cut short, and of two
drivers one goes on."""

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.model_store import ModelStore
from tests.support.waiting import until

from logboom.pipeline.checkpoint.bucket import bucket_mirror
from logboom.pipeline.checkpoint.bucket.bucket_mirror import BucketMirror, ReplacedError, check_conditions
from logboom.pipeline.checkpoint.bucket.bundle_log import DamagedBucketError, newest_state
from logboom.pipeline.checkpoint.bucket.bundles import BundleError, State, decoded, encoded
from logboom.pipeline.checkpoint.bucket.objects import Listed, StoreError, keys_of_profile, region_of
from logboom.pipeline.checkpoint.bucket.working_tree import INLINE_BYTES_MAX, ROUTER_AREA, area_of, in_area
from logboom.pipeline.edge.trimming import read_by_all
from logboom.pipeline.errors import PipelineError

AREAS = (ROUTER_AREA, area_of("a"), area_of("b"))
NAMES = ("pins/batches/1.json", "state/segments/once/77-0badcafe.arrow", "ledger/1.json", "query/commits/0", "id")
Contents = dict[str, bytes]
SET = threading.Event()
"""Nobody waits for a driver that may still run."""
SET.set()


def contents(directory: Path) -> Contents:
    """All files below a directory."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def of_area(found: Contents, area: str) -> Contents:
    return {path: data for path, data in found.items() if in_area(path, area)}


def put(directory: Path, path: str, data: bytes) -> None:
    """As the pipeline puts files in place."""
    file = directory / path
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.new")
    beside.write_bytes(data)
    beside.replace(file)


def restored(store: ModelStore, directory: Path) -> Contents:
    """What a driver on a new machine begins with."""
    BucketMirror(store, directory).look()
    return contents(directory)


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=1, max_size=3).map(lambda one: one * 40_000)),
    ),
    max_size=4,
)
SAVES = st.tuples(
    st.sampled_from(AREAS), CHANGES, st.one_of(st.none(), st.tuples(st.integers(0, 5), st.booleans())), st.booleans()
)


class Lives:
    """Drivers one after the other, each with the files that it finds, and what each area may come back as."""

    def __init__(self, root: Path) -> None:
        self.store = ModelStore()
        self._root = root
        self._number = 0
        self.saved: dict[str, list[Contents]] = {area: [{}] for area in AREAS}
        self.begin(keep=False)

    def begin(self, *, keep: bool) -> None:
        """The next driver, with the working directory of the one before or with a new one."""
        if not keep:
            self._number += 1
        self.directory = self._root / str(self._number)
        self.mirror = BucketMirror(self.store, self.directory)
        self.mirror.open(SET)
        found = contents(self.directory)
        for area in AREAS:
            assert of_area(found, area) in self.saved[area]
            self.saved[area] = [of_area(found, area)]

    def save(self, area: str, changes: list[tuple[str, bytes | None]], cut: tuple[int, bool] | None) -> bool:
        """Whether the save went through; if not, both what was and what is may come back."""
        for name, data in changes:
            path = f"{area}/{name}" if area else name
            if data is None:
                (self.directory / path).unlink(missing_ok=True)
            else:
                put(self.directory, path, data)
        now = of_area(contents(self.directory), area)
        if cut is not None:
            self.store.cut(cut[0], behind=cut[1])
        try:
            self.mirror.save(area)
        except StoreError:
            self.saved[area] = [*self.saved[area], now]
            return False
        finally:
            self.store.mend()
        self.saved[area] = [now]
        return True


@settings(deadline=None, max_examples=150)
@given(steps=st.lists(SAVES, max_size=12), between_full=st.integers(2, 6))
def test_whatever_is_cut_short_each_area_comes_back_as_it_was_saved_last_or_would_have_been(
    steps: list[tuple[str, list[tuple[str, bytes | None]], tuple[int, bool] | None, bool]], between_full: int
) -> None:
    """`Lives.begin` asserts for each new driver that every area has a state that it may have."""
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patched:
        patched.setattr(bucket_mirror, "_BUNDLES_BETWEEN_FULL", between_full)
        lives = Lives(Path(root))
        for area, changes, cut, dies in steps:
            went = lives.save(area, changes, cut)
            if dies:
                lives.begin(keep=not went)
        lives.begin(keep=False)
        lives.begin(keep=True)


def test_a_driver_on_a_new_machine_finds_every_file(tmp_path: Path) -> None:
    store, here = ModelStore(), tmp_path / "here"
    mirror = BucketMirror(store, here)
    mirror.open(SET)
    large = bytes(INLINE_BYTES_MAX + 1)
    for path, data in (("pins/batches/0.json", b"{}"), ("tables/t/v1", large), ("deliveries/a/id", b"x")):
        put(here, path, data)
    mirror.save(None)
    assert restored(store, tmp_path / "there") == contents(here)
    assert len([path for path in store.there if path.startswith("objects/")]) == 1


def test_what_is_scratch_stays_here(tmp_path: Path) -> None:
    store, here = ModelStore(), tmp_path / "here"
    mirror = BucketMirror(store, here)
    mirror.open(SET)
    scratch = (
        "lock",
        "reload.request",
        "state/exchange/1/rows.arrow",
        "state/segments/once/0badcafe.arrow",
        "deliveries/lines/file/staging/part",
        "router/offsets/.1.0badcafe.tmp",
        "replays/x/replay.json",
    )
    for path in (*scratch, "deliveries/lines/file/journal.json", "router/offsets/.1.crc"):
        put(here, path, b"x")
    mirror.save(None)
    kept = {"deliveries/lines/file/journal.json": b"x", "router/offsets/.1.crc": b"x"}
    assert restored(store, tmp_path / "there") == kept
    mirror.look()
    assert set(contents(here)) == {*scratch, *kept}, "and is left where it is"


def test_an_area_is_saved_without_what_others_are_writing(tmp_path: Path) -> None:
    store, here = ModelStore(), tmp_path / "here"
    mirror = BucketMirror(store, here)
    mirror.open(SET)
    for path in ("deliveries/a/id", "deliveries/ab/id", "ledger/0.json"):
        put(here, path, b"x")
    mirror.save(area_of("a"))
    assert set(restored(store, tmp_path / "1")) == {"deliveries/a/id"}
    mirror.save(ROUTER_AREA)
    assert set(restored(store, tmp_path / "2")) == {"deliveries/a/id", "ledger/0.json"}


def test_a_save_with_nothing_new_asks_for_nothing_and_one_with_something_is_one_request(tmp_path: Path) -> None:
    store, here = ModelStore(), tmp_path / "here"
    mirror = BucketMirror(store, here)
    mirror.open(SET)
    before = len(store.requests)
    put(here, "ledger/0.json", b"x")
    mirror.save(ROUTER_AREA)
    mirror.save(ROUTER_AREA)
    mirror.save(None)
    assert store.requests[before:] == ["put bundles/000000000002"]


def test_who_was_replaced_is_told_by_whom_and_commits_nothing_any_more(tmp_path: Path) -> None:
    store = ModelStore()
    first, second = BucketMirror(store, tmp_path / "first"), BucketMirror(store, tmp_path / "second")
    first.open(SET)
    put(tmp_path / "first", "ledger/0.json", b"first")
    first.save(ROUTER_AREA)
    second.open(SET)
    put(tmp_path / "first", "ledger/1.json", b"first")
    with pytest.raises(ReplacedError, match=r"taken over by .*, process \d+, at 20"):
        first.save(ROUTER_AREA)
    assert isinstance(first.fatal, ReplacedError)
    with pytest.raises(ReplacedError):
        first.save(area_of("a"))
    assert restored(store, tmp_path / "third") == {"ledger/0.json": b"first"}
    put(tmp_path / "second", "ledger/1.json", b"second")
    second.save(ROUTER_AREA)
    assert restored(store, tmp_path / "third") == {"ledger/0.json": b"first", "ledger/1.json": b"second"}


def test_a_driver_that_slept_through_hundreds_of_bundles_is_refused_all_the_same(tmp_path: Path) -> None:
    store = ModelStore()
    sleeper, other = BucketMirror(store, tmp_path / "sleeper"), BucketMirror(store, tmp_path / "other")
    sleeper.open(SET)
    other.open(SET)
    for number in range(300):
        put(tmp_path / "other", "ledger/0.json", b"%d" % number)
        other.save(ROUTER_AREA)
    bundles = [path for path in store.there if path.startswith("bundles/")]
    assert len(bundles) < 150, "old bundles are removed"
    put(tmp_path / "sleeper", "ledger/0.json", b"old")
    with pytest.raises(ReplacedError):
        sleeper.save(ROUTER_AREA)
    assert restored(store, tmp_path / "third") == {"ledger/0.json": b"299"}


def test_claims_are_removed_when_no_driver_can_have_slept_so_long(tmp_path: Path) -> None:
    store = ModelStore()
    BucketMirror(store, tmp_path / "first").open(SET)
    store.now += timedelta(days=31)
    mirror = BucketMirror(store, tmp_path / "second")
    mirror.open(SET)
    for number in range(200):
        put(tmp_path / "second", "ledger/0.json", b"%d" % number)
        mirror.save(ROUTER_AREA)
    assert "bundles/000000000001" not in store.there
    assert "bundles/000000000002" in store.there


def test_an_answer_that_was_lost_is_no_other_driver(tmp_path: Path) -> None:
    store, here = ModelStore(), tmp_path / "here"
    mirror = BucketMirror(store, here)
    mirror.open(SET)
    put(here, "ledger/0.json", b"1")
    store.cut(0, behind=True)
    with pytest.raises(StoreError):
        mirror.save(ROUTER_AREA)
    away = [mirror.is_away]
    store.mend()
    put(here, "ledger/0.json", b"2")
    mirror.save(ROUTER_AREA)
    assert [*away, mirror.is_away] == [True, False]
    assert restored(store, tmp_path / "there") == {"ledger/0.json": b"2"}


def test_objects_that_no_bundle_names_are_removed(tmp_path: Path) -> None:
    store, here = ModelStore(), tmp_path / "here"
    mirror = BucketMirror(store, here)
    mirror.open(SET)
    put(here, "tables/t/v", bytes(INLINE_BYTES_MAX + 1))
    store.cut(1, behind=False)
    with pytest.raises(StoreError):
        mirror.save(ROUTER_AREA)
    store.mend()
    assert [path for path in store.there if path.startswith("objects/")]
    BucketMirror(store, tmp_path / "there").open(SET)
    assert not [path for path in store.there if path.startswith("objects/")]


class Meanwhile(ModelStore):
    """Does something the first time that its objects are listed, before they are."""

    def __init__(self, what: Callable[[], None]) -> None:
        super().__init__()
        self._what: Callable[[], None] | None = what

    def list(self, directory: str) -> Sequence[Listed]:
        what, self._what = (self._what, None) if directory == "objects" else (None, self._what)
        if what is not None:
            what()
        return super().list(directory)


def test_a_driver_that_slept_behind_its_claim_removes_no_objects_of_the_one_that_replaced_it(tmp_path: Path) -> None:
    there, large = tmp_path / "there", bytes(INLINE_BYTES_MAX + 1)

    def replaced() -> None:
        other = BucketMirror(store, there)
        other.open(SET)
        put(there, "tables/t/v", large)
        other.save(ROUTER_AREA)

    store = Meanwhile(replaced)
    BucketMirror(store, tmp_path / "here").open(SET)
    assert restored(store, tmp_path / "third") == {"tables/t/v": large}


def test_old_tables_leave_the_bucket_and_what_is_used_stays(tmp_path: Path) -> None:
    store, here = ModelStore(), tmp_path / "here"
    mirror = BucketMirror(store, here)
    mirror.open(SET)
    for number in range(200):
        put(here, "state/segments/once/1-0badcafe.arrow", bytes([number]) * (INLINE_BYTES_MAX + 1))
        put(here, "tables/t/v", b"k" * (INLINE_BYTES_MAX + 1))
        mirror.save(ROUTER_AREA)
    assert len([path for path in store.there if path.startswith("objects/")]) < 150
    assert restored(store, tmp_path / "there") == contents(here)


def _with_bundles(tmp_path: Path) -> ModelStore:
    store, here = ModelStore(), tmp_path / "here"
    mirror = BucketMirror(store, here)
    mirror.open(SET)
    for number in range(3):
        put(here, f"ledger/{number}.json", b"x")
        mirror.save(ROUTER_AREA)
    put(here, "tables/t/v", bytes(INLINE_BYTES_MAX + 1))
    mirror.save(ROUTER_AREA)
    return store


def test_a_bundle_that_is_gone_or_damaged_is_told_by_name(tmp_path: Path) -> None:
    store, name = _with_bundles(tmp_path), "bundles/000000000003"
    whole = store.there.pop(name)
    with pytest.raises(DamagedBucketError, match=f"{store.url}/{name} is not there: put it back from a copy"):
        newest_state(store)
    for at in (0, 30, len(whole) - 1):
        store.there[name] = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        with pytest.raises(DamagedBucketError, match=f"{name} is "):
            newest_state(store)
    store.there[name] = store.there["bundles/000000000002"]
    with pytest.raises(DamagedBucketError, match="does not follow"):
        newest_state(store)
    store.there[name] = whole
    assert newest_state(store).number == 5


def test_an_object_that_is_gone_or_damaged_is_told_by_name(tmp_path: Path) -> None:
    store = _with_bundles(tmp_path)
    (name,) = [path for path in store.there if path.startswith("objects/")]
    whole = store.there.pop(name)
    with pytest.raises(DamagedBucketError, match=f"{store.url}/{name} is not there"):
        restored(store, tmp_path / "1")
    store.there[name] = whole[:-1] + b"?"
    with pytest.raises(DamagedBucketError, match="its checksum does not match"):
        restored(store, tmp_path / "2")


def test_a_working_directory_that_is_cut_short_is_made_whole_by_the_next_start(tmp_path: Path) -> None:
    store = _with_bundles(tmp_path)
    for at in range(1, 9):
        there = tmp_path / "there"
        store.cut(at, behind=False)
        with contextlib.suppress(StoreError):
            BucketMirror(store, there).look()
        store.mend()
        put(there, "ledger/9.json", b"later than the bucket")
        assert restored(store, there) == contents(tmp_path / "here")
        shutil.rmtree(there)


def test_a_server_that_pays_no_heed_to_the_condition_is_refused(tmp_path: Path) -> None:
    store = ModelStore()
    store.heeds_conditions = False
    with pytest.raises(PipelineError, match="ignores `If-None-Match"):
        BucketMirror(store, tmp_path).open(SET)
    with pytest.raises(PipelineError, match="ignores `If-None-Match"):
        check_conditions(store)


def test_edges_are_trimmed_by_the_commits_that_the_bucket_has(tmp_path: Path) -> None:
    store, query = ModelStore(), tmp_path / "deliveries" / "a" / "query"
    mirror = BucketMirror(store, tmp_path)
    mirror.open(SET)
    assert mirror.committed(query) is None
    for batch in (0, 1):
        put(tmp_path, f"deliveries/a/query/offsets/{batch}", b'v1\n{}\n{"e": {"0": %d}}' % (10 + batch))
        mirror.save(area_of("a"))
        put(tmp_path, f"deliveries/a/query/commits/{batch}", b"v1\n{}")
    assert mirror.committed(query) == {"e": {0: 10}}
    assert read_by_all(tmp_path / "deliveries", {"a": {"e": 1}}, mirror.committed) == {"e": {0: 10}}
    mirror.save(None)
    assert mirror.committed(query) == {"e": {0: 11}}


def test_a_bundle_that_names_a_file_elsewhere_is_refused(tmp_path: Path) -> None:
    whole = decoded(_with_bundles(tmp_path).there["bundles/000000000002"])
    for path in ("../x", "/x", "a//b"):
        wrong = msgspec.structs.replace(whole, changed={path: whole.changed["ledger/0.json"]})
        with pytest.raises(BundleError, match="outside of the working directory"):
            decoded(encoded(wrong))


@pytest.mark.parametrize("ended", [True, False])
def test_who_takes_over_waits_for_a_driver_that_may_still_run(tmp_path: Path, ended: bool) -> None:
    store, waits = ModelStore(), Waits()
    first = BucketMirror(store, tmp_path / "first")
    first.open(waits)
    first.close(ended=ended)
    BucketMirror(store, tmp_path / "first").open(waits)
    assert waits.count == 0, "who has the directory has its lock"
    second = BucketMirror(store, tmp_path / "second")
    second.open(waits)
    assert waits.count == 1
    second.close(ended=ended)
    BucketMirror(store, tmp_path / "third").open(waits)
    assert waits.count == (1 if ended else 2)


class Waits(threading.Event):
    """An event that is waited for without time."""

    count = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.count += 1
        return False


def test_a_driver_with_nothing_to_save_notices_that_it_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_mirror, "_LOOK_EVERY_S", 0.01)
    store = ModelStore()
    first, second = BucketMirror(store, tmp_path / "first"), BucketMirror(store, tmp_path / "second")
    first.open(SET)
    second.open(SET)
    until(lambda: first.fatal, "the first notices")
    assert isinstance(first.fatal, ReplacedError)
    assert second.fatal is None
    second.close(ended=True)


@pytest.mark.parametrize("environment", [{}, {"AWS_PROFILE": "work"}])
def test_keys_of_a_profile_are_used_where_the_environment_has_none(tmp_path: Path, environment: dict[str, str]) -> None:
    name = environment.get("AWS_PROFILE", "default")
    keys, config = tmp_path / "credentials", tmp_path / "config"
    keys.write_text(f"[{name}]\naws_access_key_id = id\naws_secret_access_key = a%b\n")
    config.write_text(f"[{'default' if name == 'default' else 'profile ' + name}]\nregion = eu-central-1\n")
    files = {"AWS_SHARED_CREDENTIALS_FILE": str(keys), "AWS_CONFIG_FILE": str(config), **environment}
    assert keys_of_profile(files) == {"access_key_id": "id", "secret_access_key": "a%b"}
    assert region_of(files) == "eu-central-1"
    assert keys_of_profile({**files, "AWS_ACCESS_KEY_ID": "mine"}) == {}
    assert region_of({**files, "AWS_REGION": "eu-west-1"}) == "eu-west-1"
    assert region_of({"AWS_CONFIG_FILE": str(tmp_path / "none")}) == "us-east-1"


def test_a_check_leaves_nothing_behind() -> None:
    store = ModelStore()
    check_conditions(store)
    assert not store.there


@given(st.binary(max_size=200))
def test_no_bytes_but_a_bundle_are_taken_for_one(data: bytes) -> None:
    with pytest.raises(BundleError):
        decoded(data)


def test_a_row_of_bundles_comes_to_nothing_without_the_first(tmp_path: Path) -> None:
    store = _with_bundles(tmp_path)
    second = decoded(store.there["bundles/000000000002"])
    with pytest.raises(BundleError, match="does not follow"):
        State().after(second)
