"""Brokers that were removed from the cluster, and requests of theirs that arrive only then."""

from dataclasses import replace

import pytest
from tests.metadata.test_cluster import BROKERS, cluster, minimum_of, registration

from logboom.base.errors import DuplicateBrokerError, UnknownBrokerError
from logboom.base.ids import DirectoryId
from logboom.metadata import Image, apply_all
from logboom.metadata import image as metadata_image
from logboom.metadata.membership import fence, register, unregister
from logboom.metadata.records import BrokerUnregistered


def test_a_broker_that_was_removed_is_not_registered_again_by_a_request_from_before() -> None:
    """Found by `logboom sim run --nodes 3 --seconds 60 --seed 690010`, with requests that arrive a second time: the id
    was taken by a process that had ended, and a new broker was refused under it."""
    image, late = cluster(4, replicas=3), registration(BROKERS[3])
    image = apply_all(image, fence(image, late.id, minimum_of))
    image = apply_all(image, unregister(image, late.id, minimum_of))
    for known in (image, apply_all(Image(), image.snapshot())):
        with pytest.raises(UnknownBrokerError, match="was removed from this cluster"):
            register(known, late, minimum_of)
        fresh = replace(late, directory_id=DirectoryId("fresh"), incarnation="b")
        there = apply_all(known, register(known, fresh, minimum_of))
        assert there.brokers[late.id].directory_id == "fresh"
        with pytest.raises(DuplicateBrokerError):
            register(there, late, minimum_of)
        assert apply_all(Image(), there.snapshot()) == there


def test_removed_brokers_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_image, "REMOVED_MAX", 2)
    image = cluster(4, replicas=1)
    for broker in BROKERS[:3]:
        image = apply_all(image, (BrokerUnregistered(id=broker),))
    assert list(image.removed) == list(BROKERS[1:3])
    assert apply_all(Image(), image.snapshot()) == image
