"""Runs every benchmark of this library and prints what was found beside its targets.

Progress goes to standard error, the table to standard output, the rows as data into ``results/``, a file for each
program, with the versions and the kind of machine they were measured on. ``--quick`` shows in seconds that all runs,
and keeps nothing. ``--before COMMIT --python PYTHON`` measures an earlier state of the library, which that interpreter
has installed, with the programs of today, and keeps it beside the others as ``NAME_before.json``.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from textwrap import fill
from typing import Any

from targets import judge

HERE = Path(__file__).parent
PROGRAMS = (
    "counts",
    "import",
    "tool_calls",
    "turns",
    "deltas",
    "arguments",
    "slow_listener",
    "cancel",
    "wire",
    "store",
    "many_agents",
)
LIBRARIES = ("cubepi-anyio", "anyio", "trio", "pydantic", "httpx")


def arguments() -> Namespace:
    options = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("programs", nargs="*", choices=[*PROGRAMS, []], help=f"of {', '.join(PROGRAMS)}; all if none")
    options.add_argument("--rounds", type=int)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--backend", default="both")
    options.add_argument("--results", type=Path, default=HERE / "results", help="where the rows are kept")
    options.add_argument("--before", metavar="COMMIT", help="the rows are those of an earlier state; its commit")
    options.add_argument("--python", default=sys.executable, help="the interpreter that has the library installed")
    return options.parse_args()


def machine() -> dict[str, Any]:
    """What kind of machine this is, and nothing that tells it from others of its kind."""
    return {
        "architecture": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def versions(names: tuple[str, ...] = LIBRARIES) -> dict[str, str]:
    """The versions of those distributions that are installed."""
    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def rows_of(program: str, options: list[str], python: str = sys.executable) -> list[dict[str, Any]]:
    """Run one program and return the rows it prints; its table appears on standard error as it is made."""
    command = [python, str(HERE / f"bench_{program}.py"), *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def keep(folder: Path, name: str, rows: list[dict[str, Any]], facts: dict[str, Any]) -> None:
    """Write the rows of one program as data, a row a line so that a change can be read."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    head = json.dumps(facts, indent=1)[:-2]
    (folder / f"{name}.json").write_text(f'{head},\n "rows": [\n  {lines}\n ]\n}}\n', encoding="utf-8")


def main() -> None:
    chosen = arguments()
    options = ["--backend", chosen.backend, *(["--quick"] if chosen.quick else [])]
    options += ["--rounds", str(chosen.rounds)] if chosen.rounds else []
    programs: list[str] = chosen.programs or list(PROGRAMS)
    if chosen.quick:  # nothing is measured that they could disturb
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(rows_of, programs, [options] * len(programs)))
        return
    rows: list[dict[str, Any]] = []
    for program in programs:
        began = time.monotonic()
        print(f"== {program}", file=sys.stderr, flush=True)
        found = rows_of(program, options, chosen.python)
        facts: dict[str, Any] = {"measured": datetime.now(tz=UTC).date().isoformat()}
        facts |= {"commit": chosen.before} if chosen.before else {}
        name = f"{program}_before" if chosen.before else program
        keep(chosen.results, name, found, {**facts, "machine": machine(), "versions": versions()})
        rows += found
        print(f"== {program}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    report(rows)


def report(rows: list[dict[str, Any]]) -> None:
    """Print each target with what was measured, and where it is missed, what the cost consists of."""
    print(f"\n{'work':<48}{'backend':>9}{'measured':>13}{'target':>13}")
    reasons: list[str] = []
    for target, backend, value, met in judge(rows):
        mark = "met"
        if not met:
            reason = target.cost or "not explained"
            reasons += [reason] if reason not in reasons else []
            mark = f"MISSED ({reasons.index(reason) + 1})"
        print(f"{target.work:<48}{backend:>9}{target.text(value):>13}{'≤ ' + target.text(target.bound):>13}  {mark}")
    for number, reason in enumerate(reasons, 1):
        print(f"\n({number}) {fill(reason + '.', 96, initial_indent='', subsequent_indent='    ')}")


if __name__ == "__main__":
    main()
