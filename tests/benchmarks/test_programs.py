"""Every benchmark runs at tiny sizes and prints rows of JSON; what it measures then means nothing."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PROGRAMS = sorted(path.stem for path in BENCHMARKS.glob("bench_*.py"))
BACKENDS = {"asyncio", "trio"} if find_spec("trio") else {"asyncio"}


def run_program(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCHMARKS / f"{name}.py"), *options],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def rows_of(name: str, *options: str) -> list[dict[str, Any]]:
    done = run_program(name, *options)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip(), "the table is missing"
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_rows_for_each_backend(name: str) -> None:
    backend = "both" if len(BACKENDS) == 2 else "asyncio"
    rows = rows_of(name, "--quick", "--backend", backend)
    assert {row["benchmark"] for row in rows} == {name.removeprefix("bench_")}
    assert {row["library"] for row in rows} == {"ours"}
    assert {row["backend"] for row in rows} == ({"-"} if name == "bench_import" else BACKENDS)
    measured = [row for row in rows if "size" in row]
    assert measured
    assert all(row["ratio"]["low"] <= row["ratio"]["median"] <= row["ratio"]["high"] for row in measured)


def test_counts_are_the_same_in_each_run() -> None:
    first, second = (
        {row["size"]: row for row in rows_of("bench_counts", "--quick", "--backend", "asyncio")} for _ in range(2)
    )
    for size, row in first.items():
        for key in ("package_calls", *(() if size.startswith("abort") else ("calls",))):
            assert row[key]["median"] == pytest.approx(second[size][key]["median"], rel=0.01), (size, key)
        assert row["functions"] == len(row["function_names"])
        assert row["function_names"] == second[size]["function_names"]


def test_a_listener_costs_calls_and_hears_through_functions_of_the_package() -> None:
    rows = {row["size"]: row for row in rows_of("bench_counts", "--quick", "--backend", "asyncio")}
    unheard, heard = rows["text delta"], rows["text delta, one listener"]
    assert heard["package_calls"]["median"] > unheard["package_calls"]["median"] >= 1
    assert set(heard["function_names"]) > set(unheard["function_names"])


@pytest.mark.skipif(which("cc") is None, reason="allocations are counted by a few lines of C")
def test_each_object_that_python_makes_is_one_allocation() -> None:
    program = (
        "import allocations; counter = allocations.counter(); made = [None] * 1000; began = counter.value\n"
        "for place in range(1000): made[place] = object()\n"
        "print(counter.value - began)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=BENCHMARKS)
    assert 1_000 <= int(done.stdout) < 2_100  # the numbers of the loop are objects too


def test_what_was_measured_before_names_its_commit() -> None:
    found = sorted((BENCHMARKS / "results").glob("*_before.json"))
    assert [path.stem for path in found] == ["counts_before", "import_before"]
    for path in found:
        before = json.loads(path.read_text(encoding="utf-8"))
        assert before["commit"].isalnum()
        sizes = [(row["backend"], row["size"]) for row in before["rows"]]
        assert sizes == [(row["backend"], row["size"]) for row in kept(path.stem.removesuffix("_before"))]


def test_a_house_counts_private_functions_that_one_place_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    house: Any = importlib.import_module("house")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.py").write_text("def _once(): ...\ndef _twice(): ...\n_once(); _twice(); _twice()\n")
    (tmp_path / "b.py").write_text("class C:\n    def _never(self): ...\n    def __len__(self): return 0\n")
    found = house.house(tmp_path)
    assert (found["modules"], found["lines"], found["functions"]) == (2, 6, 4)
    assert (found["private_functions"], found["private_named_once"]) == (3, 1)


def test_the_floor_measured_against_itself_is_the_floor() -> None:
    rows = rows_of("bench_turns", "--quick", "--rounds", "5", "--backend", "asyncio", "--library", "floor")
    assert all(0.2 < row["ratio"]["median"] < 5 for row in rows if "ratio" in row)


def test_an_unknown_library_is_refused_by_name() -> None:
    done = run_program("bench_turns", "--quick", "--library", "nobody")
    assert done.returncode != 0
    assert "no library 'nobody'; there are: ours, floor, cubeloop" in done.stderr


def test_all_programs_are_run_together() -> None:
    source = (BENCHMARKS / "run.py").read_text(encoding="utf-8")
    assert all(f'"{name.removeprefix("bench_")}"' in source for name in PROGRAMS)


def kept(name: str) -> list[dict[str, Any]]:
    """The rows that a program has kept."""
    return json.loads((BENCHMARKS / "results" / f"{name}.json").read_text(encoding="utf-8"))["rows"]


def test_each_kept_figure_is_at_its_target_or_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    targets: Any = importlib.import_module("targets")
    rows = [row for name in PROGRAMS for row in kept(name.removeprefix("bench_"))]
    judged = targets.judge(rows)
    assert {target.work for target, *_ in judged} == {target.work for target in targets.TARGETS}
    assert [(target.work, backend) for target, backend, _, met in judged if not met and not target.cost] == []


def test_the_report_has_a_column_for_each_library_and_a_reason_for_each_miss(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    run_peers: Any = importlib.import_module("run_peers")
    rows = [
        {"benchmark": "tool_calls", "library": library, "backend": backend, "size": 64, "ratio": {"median": ratio}}
        for library, backend, ratio in (("ours", "asyncio", 2.4), ("ours", "trio", 9.9), ("agno", "asyncio", 18.0))
    ]
    run_peers.report(rows)
    said = capsys.readouterr().out
    [work] = [line for line in said.splitlines() if line.startswith("tool_calls")]
    assert work.split() == ["tool_calls", "64", "x9.90", "x2.40", "x18.00"]
    on_asyncio, on_trio = [line for line in said.splitlines() if line.startswith("tool call, 64")]
    assert on_asyncio.endswith("met")
    assert on_trio.endswith("MISSED (1)")
    assert "\n(1) " in said


@pytest.mark.parametrize("path", sorted((BENCHMARKS / "results").glob("*.json")), ids=lambda path: path.stem)
def test_a_kept_result_says_what_it_was_measured_with_and_on_no_machine_by_name(path: Path) -> None:
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["rows"]
    assert {"architecture", "system", "cores", "python"} == set(result["machine"])
    assert {"anyio", "pydantic"} <= set(result["versions"])
    assert "/" not in json.dumps([row.get("size", "") for row in result["rows"]])
