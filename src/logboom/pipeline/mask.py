"""Masking of whole Arrow batches."""

from collections.abc import Mapping

import pyarrow as pa

from logboom.pipeline.plan import KeyRef, MaskTransform


def load_keys(refs: tuple[KeyRef, ...], environ: Mapping[str, str]) -> dict[str, bytes]:
    """The secret keys by `KeyRef.id`; LogboomError where one cannot be had. To be called on the driver."""
    raise NotImplementedError


def mask_batch(transform: MaskTransform, batch: pa.RecordBatch, keys: Mapping[str, bytes]) -> pa.RecordBatch:
    """The batch with secrets replaced and the count columns of the transform's labels added or raised."""
    raise NotImplementedError
