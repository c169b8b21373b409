"""Whether the credentials of sinks are there: on this machine, named in the environment or in files.

Knows the plan's sinks, files and the environment. Must not know servers.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from logboom.base.settings import KeyPath
from logboom.pipeline.findings import Findings
from logboom.pipeline.plan.nodes import KeyRef, Sink
from logboom.pipeline.sinks.bulk.secrets import SecretError, read_secret


def check_credentials(findings: Findings, file: str, sinks: Sequence[Sink], environ: Mapping[str, str]) -> None:
    """A variable may be set only where the pipeline runs, so one that is absent here is a warning; a file that the
    pipeline names belongs to it."""
    for sink in sinks:
        for key, ref in sink.secret_refs:
            path = ("sinks", sink.name, *_keys(key, ref))
            if ref.env is not None and ref.env not in environ:
                findings.warning(path, f"the environment variable {ref.env} is not set here; 'run' needs it")
                continue
            try:
                read_secret(ref, environ=environ, directory=Path(file).parent)
            except SecretError as error:
                findings.problem(path, str(error))


def _keys(key: str, ref: KeyRef) -> KeyPath:
    """Where the file names a credential: `token` by `token_env` or `token_file`, those of `auth` and `tls` inside
    theirs."""
    *groups, name = ("auth", "password") if key == "auth" else key.split(".")
    way = "" if name.endswith("_file") else "_env" if ref.env is not None else "_file"
    return (*groups, f"{name}{way}")
