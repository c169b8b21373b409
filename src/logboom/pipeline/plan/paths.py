"""Where the files of a pipeline lie. Knows plans and paths alone."""

from pathlib import Path

from logboom.pipeline.plan.nodes import Plan


def resolved(plan: Plan, path: str) -> Path:
    """A path of a pipeline's file: relative ones lie beside the file."""
    return (Path(plan.file).parent / path).resolve()
