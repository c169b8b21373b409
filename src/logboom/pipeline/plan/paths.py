"""Paths that a pipeline's file names. Knows only plans and paths."""

import hashlib
import os
from pathlib import Path

import msgspec

from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.plan.stores import StoreRef


def resolved(plan: Plan, path: str) -> Path:
    """A path of a pipeline's file, absolute: relative ones are relative to the file's directory."""
    return (Path(plan.file).parent / path).resolve()


def checkpoint_of(plan: Plan) -> Path:
    """The directory with the files of a plan's checkpoint; of one in an object store, the one that they are worked on
    in."""
    if plan.checkpoint_store is msgspec.UNSET:
        return resolved(plan, plan.checkpoint)
    if plan.work_dir is not msgspec.UNSET:
        return resolved(plan, plan.work_dir)
    return default_work_dir(plan.name, plan.checkpoint_store)


def default_work_dir(pipeline: str, store: StoreRef) -> Path:
    """Where the files of a checkpoint in an object store are worked on if nothing else is said: what may be lost
    belongs into the user's cache (XDG Base Directory Specification)."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    place = hashlib.sha256(f"{store.endpoint or ''} {store.url}".encode()).hexdigest()[:12]
    return Path(cache) / "logboom" / "checkpoints" / f"{pipeline}-{place}"
