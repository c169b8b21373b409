"""Paths that a pipeline's file names. Knows plans and paths alone."""

from pathlib import Path

from logboom.pipeline.plan.nodes import Plan


def resolved(plan: Plan, path: str) -> Path:
    """A path of a pipeline's file, absolute: relative ones are relative to the file's directory."""
    return (Path(plan.file).parent / path).resolve()
