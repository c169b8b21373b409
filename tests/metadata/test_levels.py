"""The metadata level: it is raised once all brokers speak it, and no program that does not is let in from then on."""

import msgspec
import pytest

from logboom.base.errors import FormatVersionError, InvalidUpdateVersionError, UnsupportedLevelError
from logboom.base.ids import BrokerEpoch, BrokerId, DirectoryId
from logboom.metadata import Image, Stream, apply_all
from logboom.metadata.brokers import Broker
from logboom.metadata.levels import OWN_LEVELS, Levels, check_written, set_level
from logboom.metadata.membership import RegistrationRequest, register
from logboom.metadata.records import BrokerRegistered, MetadataLevelSet, decode, encode, level_of

OLD, NEW = Levels(1, 1), Levels(1, 2)


def registration(broker: int, levels: Levels = NEW, **more: object) -> RegistrationRequest:
    return RegistrationRequest(
        id=BrokerId(broker),
        directory_id=DirectoryId(f"d{broker}"),
        incarnation="1",
        listeners={},
        software="9.1",
        levels=levels,
        **more,  # type: ignore[arg-type]
    )


def joined(image: Image, *brokers: int, levels: Levels = NEW) -> Image:
    for broker in brokers:
        records = register(image, registration(broker, levels), minimum_of)
        check_written(image, records)
        image = apply_all(image, records)
    return image


def minimum_of(_: Stream) -> int:
    return 1


def broker_of(image: Image, broker: int) -> Broker:
    return image.brokers[BrokerId(broker)]


def test_the_level_is_raised_once_every_broker_speaks_it() -> None:
    image = joined(Image(), 1, 2)
    assert broker_of(image, 1).levels is None, "level 1 has no place for it"
    told = {BrokerId(1): NEW}
    with pytest.raises(InvalidUpdateVersionError, match=r"broker 2 speaks is not known: it is down, or .*Logboom 9\.1"):
        set_level(image, 2, may_lower=False, told=told)
    with pytest.raises(InvalidUpdateVersionError, match=r"broker 2 .* speaks metadata levels 1 to 1, not 2"):
        set_level(image, 2, may_lower=False, told={**told, BrokerId(2): OLD})
    records = set_level(image, 2, may_lower=False, told={**told, BrokerId(2): NEW})
    check_written(image, records)
    image = apply_all(image, records)
    assert image.level == 2
    assert set_level(image, 2, may_lower=False, told={}) == ()
    assert broker_of(joined(image, 3), 3).levels == NEW


def test_what_the_controller_does_not_speak_is_refused() -> None:
    for level in (0, OWN_LEVELS.newest + 1):
        with pytest.raises(
            InvalidUpdateVersionError, match=f"the controller speaks metadata levels 1 to {OWN_LEVELS.newest}"
        ):
            set_level(joined(Image(), 1), level, may_lower=True, told={})


def test_a_level_that_is_in_use_is_not_left() -> None:
    image = apply_all(joined(Image(), 1), (MetadataLevelSet(level=2),))
    with pytest.raises(InvalidUpdateVersionError, match="1 would be a downgrade"):
        set_level(image, 1, may_lower=False, told={BrokerId(1): NEW})
    with pytest.raises(InvalidUpdateVersionError, match="hold records of level 2"):
        set_level(image, 1, may_lower=True, told={BrokerId(1): NEW})


@pytest.mark.parametrize(("levels", "what"), [(OLD, "start a newer one"), (Levels(3, 4), "raise the level first")])
def test_a_program_that_does_not_speak_the_level_is_not_let_in(levels: Levels, what: str) -> None:
    image = apply_all(joined(Image(), 1), (MetadataLevelSet(level=2),))
    with pytest.raises(UnsupportedLevelError, match=what) as refused:
        register(image, registration(2, levels), minimum_of)
    assert "the cluster is at metadata level 2, and the program of broker 2 (Logboom 9.1)" in str(refused.value)


def test_no_record_is_written_that_some_broker_could_not_read() -> None:
    for image in (joined(Image(), 1, 2), joined(apply_all(Image(), (MetadataLevelSet(level=2),)), 1, 2)):
        assert max(map(level_of, image.snapshot())) == image.level
    record = BrokerRegistered(
        version=3,
        id=BrokerId(1),
        epoch=BrokerEpoch(0),
        directory_id=DirectoryId("d"),
        incarnation="1",
        listeners={},
        levels=NEW,
    )
    with pytest.raises(AssertionError, match="BrokerRegistered of version 3 at level 1"):
        check_written(Image(), (record,))


def test_a_snapshot_keeps_the_level() -> None:
    image = joined(apply_all(Image(), (MetadataLevelSet(level=2),)), 1, 2)
    decoded = [decode(encode(record)) for record in image.snapshot()]
    assert apply_all(Image(), decoded) == image


def test_a_level_of_a_newer_program_stops_this_one() -> None:
    newer = msgspec.json.encode({"type": "metadata_level_set", "version": 1, "level": OWN_LEVELS.newest + 1})
    with pytest.raises(FormatVersionError, match="start a newer version of Logboom"):
        decode(newer)
