"""The settings by which Spark runs conditions, in a session and in a bare JVM alike. Knows Spark's names alone."""

from collections.abc import Mapping
from typing import Final

SQL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    # A condition on one odd record must not stop the batch; casts that fail give null.
    "spark.sql.ansi.enabled": "false",
    # This rule moves the guard around a condition into its branches, behind the condition that it is to guard.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PushFoldableIntoBranches",
    # What two conditions share would be evaluated before both, outside the guard around each.
    "spark.sql.subexpressionElimination.enabled": "false",
}
"""What a condition means depends on these."""
