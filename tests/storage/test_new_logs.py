"""A new log costs no sync; its first batch makes durable all that it is made of."""

from random import Random

from tests.support.logs import DIRECTORY, Reports, append, batch, open_log, read_batches

from logboom.base.ids import Epoch, Offset
from logboom.sim.disk import SimDisk
from logboom.storage import read_owner, write_owner

MARK = b'{"stream": "orders"}\n'


def test_a_new_log_syncs_nothing() -> None:
    disk = SimDisk()
    disk.make_dir(DIRECTORY)
    asked: list[str] = []
    disk.fault = lambda operation, _path: asked.append(operation)
    write_owner(disk, DIRECTORY, MARK)
    log = open_log(disk)
    assert log.log_end_offset == 0
    assert not {"sync", "sync_dir"} & set(asked)


def test_a_power_failure_before_the_first_batch_leaves_a_log_that_can_be_opened() -> None:
    for seed in range(20):
        disk = SimDisk()
        disk.make_dir(DIRECTORY)
        write_owner(disk, DIRECTORY, MARK)
        open_log(disk)
        survivor = disk.power_cut(Random(seed))
        assert read_owner(survivor, DIRECTORY) in (None, MARK[: len(read_owner(survivor, DIRECTORY) or b"")])
        log = open_log(survivor)
        append(log, batch())
        log.flush(sync=True)
        assert len(read_batches(log, 0)) == 1


def test_the_first_batch_makes_names_and_mark_durable() -> None:
    for restarted in (False, True):
        for seed in range(20):
            disk = SimDisk()
            disk.make_dir(DIRECTORY)
            write_owner(disk, DIRECTORY, MARK)
            log = open_log(disk)
            if restarted:  # the process was killed, and the next one finds what no disk has yet
                disk = disk.restarted()
                log = open_log(disk)
            append(log, batch())
            log.flush(sync=True)
            survivor = disk.power_cut(Random(seed))
            assert read_owner(survivor, DIRECTORY) == MARK
            reports = Reports()
            assert open_log(survivor, reports=reports).durable_end == 1
            assert not reports.damage


def test_a_log_without_a_batch_is_closed_and_opened_again_without_a_sync() -> None:
    disk = SimDisk()
    disk.make_dir(DIRECTORY)
    asked: list[str] = []
    disk.fault = lambda operation, _path: asked.append(operation)
    log = open_log(disk)
    log.epochs.begin(Epoch(3), Offset(0))  # a leadership that wrote nothing
    log.close()
    open_log(disk).close()
    assert not {"sync", "sync_dir"} & set(asked)
    log = open_log(disk)
    append(log, batch(), leader_epoch=4)
    log.close()
    assert open_log(disk.power_cut(Random(1))).durable_end == 1
