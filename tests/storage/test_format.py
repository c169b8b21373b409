import pytest

from logboom.base.errors import FormatVersionError
from logboom.sim.disk import SimDisk
from logboom.storage import FORMAT_VERSION, claim_format


def with_format(content: bytes) -> SimDisk:
    disk = SimDisk()
    disk.open("format.json", create=True).write(0, [content])
    return disk


def test_a_new_directory_is_marked_and_known_again() -> None:
    disk = SimDisk()
    claim_format(disk, "logboom 0.1.0")
    content = bytes(disk.nodes["format.json"].durable)
    assert b'"format": %d' % FORMAT_VERSION in content
    claim_format(disk, "logboom 9.0.0")
    assert bytes(disk.nodes["format.json"].data) == content


def test_a_newer_format_is_refused_by_name() -> None:
    disk = with_format(b'{"format": %d, "written_by": "logboom 7.1"}' % (FORMAT_VERSION + 1))
    with pytest.raises(
        FormatVersionError, match=r"format 3, written by logboom 7\.1; logboom 0\.1\.0 knows .* up to 2"
    ):
        claim_format(disk, "logboom 0.1.0")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"{}", b'{"format": "1"}', b'{"format": true}', b"\xff"])
def test_a_file_that_makes_no_sense_is_refused(content: bytes) -> None:
    with pytest.raises(FormatVersionError):
        claim_format(with_format(content), "logboom 0.1.0")
