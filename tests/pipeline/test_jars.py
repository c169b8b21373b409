"""Spark's Kafka connector where Maven is not there: Spark fetches it itself, or one sentence says what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pipeline.support import needs_java

from logboom.pipeline.spark import jars

WAIT_S = 300
START = """
import sys
from pathlib import Path
from logboom.base.errors import LogboomError
from logboom.pipeline.spark import jars
from logboom.pipeline.spark import session
from logboom.pipeline.spark import settings as spark_settings
jars.cache_dir = lambda: Path(sys.argv[1])
try:
    options = spark_settings.SessionOptions(master="local[1]", settings={"spark.jars.ivySettings": sys.argv[2]})
    session.start_session("jars", options)
except LogboomError as error:
    print(error)
"""
NO_REPOSITORY = """<ivysettings><settings defaultResolver="none"/><caches defaultCacheDir="{directory}"/>
<resolvers><filesystem name="none"><artifact pattern="{directory}/[artifact].[ext]"/></filesystem></resolvers>
</ivysettings>
"""


def test_without_maven_spark_is_asked_to_fetch_what_pom_xml_pins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "cache_dir", lambda: tmp_path / "jars")
    monkeypatch.setenv("PATH", str(tmp_path))
    connector = jars.coordinates()[0]
    assert jars.spark_settings() == {jars.PACKAGES: str(connector)}
    (tmp_path / "mvn").write_text("#!/bin/sh\necho '[ERROR] nobody answers' >&2; exit 1\n")
    (tmp_path / "mvn").chmod(0o755)
    with pytest.raises(jars.JarsError, match=r"Maven cannot fetch Spark's Kafka connector: .*nobody answers"):
        jars.spark_settings()


@pytest.mark.spark
@needs_java
def test_where_spark_cannot_fetch_it_either_a_sentence_says_what_to_do(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for tool in Path(directory).iterdir() if Path(directory).is_dir() else ():
            if tool.name != "mvn" and not os.path.lexists(tools / tool.name):
                (tools / tool.name).symlink_to(tool)
    settings = tmp_path / "ivy.xml"
    settings.write_text(NO_REPOSITORY.format(directory=tmp_path / "nothing"))
    done = subprocess.run(
        [sys.executable, "-c", START, str(tmp_path / "jars"), str(settings)],
        env={**os.environ, "PATH": str(tools)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert "Spark cannot download its Kafka connector, and Maven, which could, is not installed" in done.stdout, (
        done.stderr[-2_000:]
    )
