"""Whether the credentials of sinks exist on this machine, in environment variables or files.

Knows the plan's sinks, files and the environment. Must not know servers.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from logboom.base.settings import KeyPath
from logboom.pipeline.findings import Findings
from logboom.pipeline.plan.nodes import KeyRef, Sink
from logboom.pipeline.sinks.bulk.secrets import SecretError, read_secret


def check_credentials(findings: Findings, file: str, sinks: Sequence[Sink], environ: Mapping[str, str]) -> None:
    """A variable may be set only on the machine that runs the pipeline, so a missing variable is a warning; a missing
    file is a problem."""
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
    """The key paths of credentials: `token` is given by `token_env` or `token_file`, those of `auth` and `tls` inside
    these groups."""
    *groups, name = ("auth", "password") if key == "auth" else key.split(".")
    way = "" if name.endswith("_file") else "_env" if ref.env is not None else "_file"
    return (*groups, f"{name}{way}")
