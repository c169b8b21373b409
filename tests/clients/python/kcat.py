"""kcat against a broker: produce, consume or admin (its metadata listing). Prints "ok ..." last, or dies."""

import json
import subprocess
import sys


def kcat(*arguments: str, text: str | None = None) -> str:
    done = subprocess.run(["kcat", *arguments], input=text, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def produce(bootstrap: str, topic: str, first: int, count: int, codec: str) -> None:
    """One kcat for each 500 lines, so that a restart of the broker falls between and into its runs."""
    for start in range(first, first + count, 500):
        lines = range(start, min(start + 500, first + count))
        text = "".join(f"key-{n % 7}|value-{n}\n" for n in lines)
        options = ["-X", "enable.idempotence=true", "-X", "message.timeout.ms=100000"]
        kcat("-P", "-b", bootstrap, "-t", topic, "-K", "|", "-z", codec, *options, text=text)
        print(f"sent {start}", flush=True)
    print(f"ok produced {count}")


def consume(bootstrap: str, topic: str, group: str, count: int) -> None:
    out = kcat(
        "-b", bootstrap, "-G", group, "-X", "auto.offset.reset=earliest", "-c", str(count), "-J", "-q", topic
    )  # fmt: skip
    last: dict[str, int] = {}
    records = [json.loads(line) for line in out.splitlines()]
    for record in records:
        n = int(record["payload"].removeprefix("value-"))
        assert n > last.get(record["key"], -1), f"{record['key']}: {n} after {last[record['key']]}"
        last[record["key"]] = n
    assert len(records) == count, f"saw {len(records)} of {count}"
    print(f"ok consumed {count}")


def admin(bootstrap: str, topic: str) -> None:
    listing = json.loads(kcat("-L", "-J", "-b", bootstrap, "-t", topic))
    assert len(listing["brokers"]) == 1
    offsets = kcat("-Q", "-b", bootstrap, "-t", f"{topic}:0:-1")
    assert "offset 0" in offsets, offsets
    print(f"ok admin {topic}")


if __name__ == "__main__":
    verb, rest = sys.argv[1], sys.argv[2:]
    if verb == "produce":
        for part, codec in enumerate(rest[4].split(",")):
            produce(rest[0], rest[1], int(rest[2]) + part * int(rest[3]), int(rest[3]), codec)
    elif verb == "consume":
        consume(rest[0], rest[1], rest[2], int(rest[3]))
    else:
        admin(rest[0], rest[1])
