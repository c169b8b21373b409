import contextlib
import gzip
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.base.errors import CorruptBatchError, MessageTooLargeError
from logboom.records import Codec, compress, decompress

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
LIMIT = 1 << 20


@pytest.mark.parametrize("codec", Codec)
@given(payload=st.one_of(st.binary(max_size=2000), st.binary(min_size=1, max_size=20).map(lambda b: b * 9000)))
@settings(max_examples=40, deadline=None)
def test_round_trip(codec: Codec, payload: bytes) -> None:
    packed = compress(codec, payload)
    assert decompress(codec, packed, max(len(payload), 1)) == payload
    assert decompress(codec, memoryview(packed), LIMIT) == payload


@pytest.mark.parametrize("codec", Codec)
def test_one_byte_above_the_limit_is_too_large(codec: Codec) -> None:
    payload = b"abcdefg" * 20_000
    packed = compress(codec, payload)
    assert decompress(codec, packed, len(payload)) == payload
    with pytest.raises(MessageTooLargeError):
        decompress(codec, packed, len(payload) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_costs_no_more_than_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(MessageTooLargeError):
            decompress(codec, bomb, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 5 * LIMIT + len(bomb)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.binary(max_size=400))
@settings(max_examples=100, deadline=None)
def test_any_bytes_decompress_or_raise_the_typed_error(codec: Codec, data: bytes) -> None:
    with contextlib.suppress(CorruptBatchError, MessageTooLargeError):
        assert len(decompress(codec, data, 10_000)) <= 10_000


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_mutated_streams_decompress_or_raise_the_typed_error(codec: Codec, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, b"some log line with some more words in it\n" * 30))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(packed)))
    with contextlib.suppress(CorruptBatchError, MessageTooLargeError):
        assert len(decompress(codec, packed[:cut], 10_000)) <= 10_000


def test_raw_snappy_is_read() -> None:
    # librdkafka writes one raw block, snappy-java a framed stream.
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b"abc" * 1000)), LIMIT) == b"abc" * 1000


def test_snappy_java_blocks_and_streams_are_read() -> None:
    payload = bytes(range(256)) * 1000
    packed = compress(Codec.SNAPPY, payload)
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(Codec.SNAPPY, packed + packed, LIMIT) == payload + payload
    with pytest.raises(MessageTooLargeError):
        decompress(Codec.SNAPPY, packed + packed, len(payload) + 10)


def test_frames_one_behind_another_are_read() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"abc") + gzip.compress(b"defg"), LIMIT) == b"abcdefg"
    for codec, whole in ((Codec.LZ4, cramjam.lz4.compress), (Codec.ZSTD, cramjam.zstd.compress)):
        assert decompress(codec, bytes(whole(b"abc")) + bytes(whole(b"defg")), LIMIT) == b"abcdefg"


def test_our_lz4_frames_are_independent_blocks() -> None:
    # Kafka's Java reader refuses linked blocks. Bit 5 of the flags says independent; 0x82 is the hash of the flags.
    packed = compress(Codec.LZ4, b"x" * 200_000)
    assert packed[:7].hex() == "04224d18604082"
    assert bytes(cramjam.lz4.decompress(packed)) == b"x" * 200_000


def test_a_zstd_frame_that_asks_for_a_huge_window_is_refused() -> None:
    window_of_2_gib = bytes.fromhex("28b52ffd00") + bytes([(31 - 10) << 3]) + b"\x01\x00\x00"
    with pytest.raises(CorruptBatchError):
        decompress(Codec.ZSTD, window_of_2_gib, LIMIT)


def test_threads_that_decompress_at_once_get_each_its_own() -> None:
    def work(number: int) -> bool:
        codec = COMPRESSED[number % len(COMPRESSED)]
        payloads = [bytes([number]) * size for size in (10, 200_000, 3_000_000, 5)]
        packed = [compress(codec, payload) for payload in payloads]
        return all(decompress(codec, packed[at % 4], 4 << 20) == payloads[at % 4] for at in range(40))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(8)))


@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_was_decompressed_before_does_not_show(codec: Codec) -> None:
    decompress(codec, compress(codec, b"secret" * 50_000), LIMIT)
    assert decompress(codec, compress(codec, b"short"), LIMIT) == b"short"
    with pytest.raises(MessageTooLargeError):
        decompress(codec, compress(codec, b"x" * 1000), 999)


@given(st.binary(max_size=200_000), st.integers(1, 17))
@settings(max_examples=50)
def test_lz4_at_any_level_is_read_back(payload: bytes, level: int) -> None:
    packed = compress(Codec.LZ4, payload, level=level)
    assert decompress(Codec.LZ4, packed, len(payload)) == payload
    assert decompress(Codec.LZ4, compress(Codec.LZ4, payload * 3, level=level), 3 * len(payload)) == payload * 3
