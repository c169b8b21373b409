"""What a result says of the machine that it came from."""

from pathlib import Path

import pytest

from logboom.bench import report


@pytest.mark.parametrize(
    ("state", "action", "expected"), [("on", "pageout", True), ("off", "pageout", False), ("on", "stat", False)]
)
def test_a_kernel_that_pages_out_idle_memory_is_named(tmp_path: Path, state: str, action: str, expected: bool) -> None:
    (tmp_path / "nr_kdamonds").write_text("1\n")
    scheme = tmp_path / "0" / "contexts" / "0" / "schemes" / "0"
    scheme.mkdir(parents=True)
    (scheme / "action").write_text(f"{action}\n")
    (tmp_path / "0" / "state").write_text(f"{state}\n")
    assert report.pages_out_idle_memory(tmp_path) is expected


def test_a_kernel_without_damon_is_like_any_other(tmp_path: Path) -> None:
    assert not report.pages_out_idle_memory(tmp_path / "missing")


def test_a_busy_machine_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "pages_out_idle_memory", lambda: False)
    monkeypatch.setattr("os.getloadavg", lambda: (40.0, 1.0, 1.0))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert ["load average 40.0 on 2 cores" in warning for warning in report.warnings()] == [True]
    monkeypatch.setattr("os.getloadavg", lambda: (0.1, 40.0, 40.0))
    assert report.warnings() == []
