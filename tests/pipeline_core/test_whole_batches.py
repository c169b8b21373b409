"""Pieces that are put together lose no row, whatever their size."""

import pyarrow as pa
import pytest

from logboom.base.units import MIB
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.event.record_batch import whole_batch


def test_pieces_become_one_batch_in_their_order() -> None:
    pieces = [pa.RecordBatch.from_pydict({"body": [str(number)]}) for number in range(5)]
    assert whole_batch(pa.Table.from_batches(pieces)).column("body").to_pylist() == list("01234")
    assert whole_batch(pa.Table.from_batches(pieces).slice(0, 0)).num_rows == 0


@pytest.mark.slow
def test_more_than_one_array_can_hold_is_refused_and_not_cut() -> None:
    large = pa.RecordBatch.from_pydict({"body": ["x" * 700 * MIB]})
    with pytest.raises(PipelineError, match="3 events of one batch have more than 2 GiB in one column"):
        whole_batch(pa.Table.from_batches([large] * 3))
