"""The transform `encrypt`: fields that only the holder of a key reads. The work is `logboom.pipeline.seal`."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal

import pyarrow as pa
from pydantic import Field

from logboom.base.settings import Texts
from logboom.pipeline.findings import Part
from logboom.pipeline.plan.nodes import KernelTransform, KeyRef
from logboom.pipeline.seal.batch import PREFIX, seal_batch
from logboom.pipeline.seal.cipher import KEY_NAME, Cipher
from logboom.pipeline.transforms.base import CommonFields, TransformModel, TransformType

_FIELDS: Final = ("body", "service", "host", "severity_text")


class EncryptModel(TransformModel):
    """Encrypts fields."""

    type: Literal["encrypt"]
    fields: Texts = Field(min_length=1)
    """Attributes, `attributes.NAME`, and text fields of the event."""

    key_name: str
    """What the encrypted values call the key; another key should have another name."""

    key_env: str | None = None
    """Environment variable that holds the key."""

    key_file: str | None = None
    """File that holds the key; a relative path is beside the pipeline's file."""


class EncryptTransform(KernelTransform, frozen=True, kw_only=True, tag="encrypt"):
    """Puts encrypted texts in place of the values of `fields`."""

    fields: tuple[str, ...]
    key_name: str
    key: KeyRef

    @property
    def key_refs(self) -> tuple[KeyRef, ...]:
        return (self.key,)

    def run(self, batch: pa.RecordBatch, keys: Mapping[str, bytes]) -> pa.RecordBatch:
        return seal_batch(_cipher(self.key_name, keys[self.key.id]), self.fields, batch)


@lru_cache(maxsize=64)
def _cipher(name: str, key: bytes) -> Cipher:
    return Cipher(name, key)


def _compile(model: EncryptModel, common: CommonFields, part: Part) -> EncryptTransform | None:
    for index, field in enumerate(model.fields):
        if field not in _FIELDS and (not field.startswith(PREFIX) or field == PREFIX):
            part.unknown(("fields", index), "field", field, [*_FIELDS, f"{PREFIX}NAME"])
    if not KEY_NAME.fullmatch(model.key_name):
        part.problem("key_name", f"{model.key_name!r} should be letters, digits, '.', '_' and '-', at most 80")
    if (model.key_env is None) == (model.key_file is None):
        part.problem((), "needs one of key_env and key_file")
        return None
    key = KeyRef(env=model.key_env, file=model.key_file)
    return EncryptTransform(**common, fields=tuple(dict.fromkeys(model.fields)), key_name=model.key_name, key=key)


TRANSFORM: Final = TransformType("encrypt", EncryptModel, EncryptTransform, _compile)
