"""Resolves paths in a pipeline's file. Knows only plans and paths."""

import hashlib
import os
from pathlib import Path

import msgspec

from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.plan.stores import StoreRef


def resolved(plan: Plan, path: str) -> Path:
    """A path in a pipeline's file as an absolute path; relative ones are relative to the file's directory."""
    return (Path(plan.file).parent / path).resolve()


def checkpoint_of(plan: Plan) -> Path:
    """The directory of a plan's checkpoint; for one in an object store, its working directory."""
    if plan.checkpoint_store is msgspec.UNSET:
        return resolved(plan, plan.checkpoint)
    if plan.work_dir is not msgspec.UNSET:
        return resolved(plan, plan.work_dir)
    return default_work_dir(plan.name, plan.checkpoint_store)


def default_work_dir(pipeline: str, store: StoreRef) -> Path:
    """Default working directory of a checkpoint in an object store. Its content may be lost, so it is in the user's
    cache (XDG Base Directory Specification)."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    place = hashlib.sha256(f"{store.endpoint or ''} {store.url}".encode()).hexdigest()[:12]
    return Path(cache) / "logboom" / "checkpoints" / f"{pipeline}-{place}"
