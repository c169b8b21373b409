"""How Spark writes the files of a query's checkpoint."""

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from tests.pipeline.support import needs_java

pytestmark = [pytest.mark.spark, needs_java]


def test_a_file_has_its_name_once_it_is_whole_and_nobody_is_asked_for_links(spark: Any, tmp_path: Path) -> None:
    """What Spark takes by itself starts eight commands (`readlink`) for each file, of which a batch writes two."""
    jvm = spark.sparkContext._jvm
    checkpointing = jvm.org.apache.spark.sql.execution.streaming.checkpointing
    directory = jvm.org.apache.hadoop.fs.Path(str(tmp_path))
    manager = checkpointing.CheckpointFileManager.create(directory, spark._jsparkSession.sessionState().newHadoopConf())
    assert manager.getClass().getSimpleName() == "FileSystemBasedCheckpointFileManager"

    for content, is_first in ((b"first", True), (b"second", False)):
        file = manager.createAtomic(jvm.org.apache.hadoop.fs.Path(directory, "0"), False)
        file.write(content)
        assert (tmp_path / "0").exists() is not is_first
        if is_first:
            file.close()
        else:
            with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
                file.close()
    assert (tmp_path / "0").read_bytes() == b"first"
