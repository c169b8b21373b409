"""What the logs of the brokers say of compactions, and the table that is compacted."""

from logboom.bench.compact.cleaners import Told, told_by_kafka, told_by_logboom
from logboom.bench.compact.table import batches_of, updates
from logboom.records import iter_batches, iter_records

KAFKA = """\
[kafka-log-cleaner-thread-0] INFO org.apache.kafka.storage.internals.log.LogCleaner$CleanerThread - [x]:
\tLog cleaner thread 0 cleaned log other-0 (dirty section = [0, 9])
\t8.0 MB of log processed in 0.9 seconds (93.9 MB/sec).
\tStart size: 8.0 MB (77 messages)
\tEnd size: 2.7 MB (20 messages)
\tLog cleaner thread 0 cleaned log table-0 (dirty section = [15448, 77240])
\t1,080.0 MB of log processed in 1,000.9 seconds (93.9 MB/sec).
\tIndexed 64.0 MB in 0.3 seconds (233.6 Mb/sec, 32.2% of total time)
\tBuffer utilization: 0.3%
\tCleaned 80.0 MB in 0.6 seconds (138.4 Mb/sec, 67.8% of total time)
\tStart size: 1,080.0 MB (77,240 messages)
\tEnd size: 20.5 MB (20,000 messages)
"""
LOGBOOM = """\
{"message": "log compacted", "partition": "table-0", "clean_up_to": 7, "size_bytes_before": 10, "size_bytes_after": 4,
""".replace("\n", ' "seconds": 0.5}\n')


def test_kafkas_log_is_understood() -> None:
    mib = 1024 * 1024
    assert told_by_kafka(KAFKA, "table-0") == [Told(77_240, 1000.9, 1080 * mib, int(20.5 * mib))]
    assert told_by_kafka(KAFKA, "able-0") == []


def test_our_own_log_is_understood() -> None:
    assert told_by_logboom(LOGBOOM + "no JSON\n", "table-0") == [Told(7, 0.5, 10, 4)]
    assert told_by_logboom(LOGBOOM, "table-1") == []


def test_the_table_has_the_records_and_batches_that_were_asked_for() -> None:
    keys = updates(10, 1, 1_000)
    assert keys == updates(10, 1, 1_000)
    assert set(keys) == set(range(10))
    for batch_bytes, most in ((65_536, 66_000), (1, 1_200)):
        batches = batches_of(keys, 1_000, batch_bytes)
        assert max(map(len, batches)) <= most
        found = [(one, at, header) for one in batches for at, header in iter_batches(one)]
        read = [record.key for batch in found for record in iter_records(*batch, 1 << 20)]
        assert read == [b"key-%012d" % key for key in keys]
