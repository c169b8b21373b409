"""etcd's published transcripts: every message, the contents of every Ready and the resulting states equal ours.

Only lines that etcd's core logs are left out of the comparison.
"""

from pathlib import Path

import pytest
from tests.raft.datadriven import case_files, read_cases
from tests.raft.interaction import InteractionEnv, without_log_lines


@pytest.mark.parametrize("path", case_files("interaction"))
def test_published_transcripts(path: Path) -> None:
    env = InteractionEnv()
    for case in read_cases(path):
        actual = without_log_lines(env.handle(case))
        assert actual.splitlines() == without_log_lines(case.expected).splitlines(), f"{path.name}:{case.line}"
