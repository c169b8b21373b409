"""`python -m logboom.pipeline.spark.jars`: fetch the connector's jars now, so that later runs work offline."""

import sys

from logboom.pipeline.spark.jars import JarsError, fetch_jars


def _tell(name: str) -> None:
    print(f"Collecting {name}", flush=True)


def main() -> int:
    """Print the directory of the jars; exit code 1 and one sentence if they are not available."""
    try:
        jars = fetch_jars(_tell if "--progress" in sys.argv[1:] else None)
    except JarsError as error:
        print(error, file=sys.stderr)
        return 1
    print(jars[0].parent)
    return 0


if __name__ == "__main__":
    sys.exit(main())
