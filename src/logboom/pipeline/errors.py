"""The one error of the pipeline that a person reads: one sentence that says what to do. Knows nothing else."""

from logboom.base.errors import LogboomError


class PipelineError(LogboomError):
    """The pipeline cannot run or go on; its text says what to do."""
