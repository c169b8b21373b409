"""The key `checkpoint`: a directory, or a bucket and a working directory for its files.

Knows the document and paths. It reads the key directly from the document, so that faults of other keys hide no fault of
this one.
"""

from dataclasses import dataclass
from typing import Any, Final

from logboom.base.settings import KeyPath
from logboom.pipeline.findings import Findings
from logboom.pipeline.plan.paths import default_work_dir
from logboom.pipeline.plan.stores import StoreRef, is_url_of_store, option_faults, store_fault

_KEY: Final = "checkpoint"


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """Where a checkpoint is."""

    path: str | None
    path_key: KeyPath
    """The key path of `path` in the document."""
    store: StoreRef | None
    work_dir: str | None

    @property
    def files_key(self) -> KeyPath:
        """The part of the document that locates the checkpoint's files."""
        return self.path_key if self.work_dir is None else (_KEY, "work_dir")

    def path_of(self, pipeline: str) -> str:
        """The path, or the default path if the pipeline names none."""
        return f"./checkpoints/{pipeline}" if self.path is None else self.path


def checkpoint_place(findings: Findings) -> CheckpointPlace:
    """Reads the key, whatever else is wrong with the document."""
    data = findings.document.data
    given: Any = data.get(_KEY) if isinstance(data, dict) else None
    group: dict[str, Any] = given if isinstance(given, dict) else {"path": given}
    path, endpoint, region, work_dir = (_text(group.get(key)) for key in ("path", "endpoint", "region", "work_dir"))
    key: KeyPath = (_KEY, "path") if isinstance(given, dict) else (_KEY,)
    store = None
    if path is not None and is_url_of_store(path):
        store = StoreRef(url=path.rstrip("/"), endpoint=endpoint, region=region)
    return CheckpointPlace(path, key, store, work_dir)


def files_of(findings: Findings, pipeline: str, place: CheckpointPlace) -> str | None:
    """The directory of the checkpoint's files, as text; None if the location is invalid, which is reported."""
    if place.store is None:
        if place.work_dir is not None:
            findings.problem((_KEY, "work_dir"), "goes with a path in a bucket, such as s3://BUCKET/PREFIX")
        return place.path_of(pipeline)
    fault = store_fault(place.store, "checkpoint")
    if fault is not None:
        findings.problem(place.path_key, fault)  # the path is not shown: it may hold a credential
    for key, wrong in option_faults(place.store.url, place.store.endpoint, place.store.region).items():
        findings.problem((_KEY, key), wrong)
    return str(default_work_dir(pipeline, place.store)) if place.work_dir is None else place.work_dir


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
