"""Runs the same benchmarks with other agent libraries, each in an environment of its own, and keeps what was found.

The environments are made if they are not there, in the versions named here. The floor is measured beside each library
in its own process, so the ratios of two libraries can be compared although their rounds were not interleaved. This
library is measured once more with the peers. What a peer cannot do is left out, and a size is not reached when the one
before it took too long.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from run import HERE, PROGRAMS, keep, machine, versions
from run import report as report_targets

FLOOR = ("anyio==4.16.0", "httpx==0.28.1", "pydantic")
"""What the floor needs, whatever a library brings."""
# The Anthropic providers of the first two pass an argument that newer releases of the SDK refuse.
PEERS: dict[str, tuple[str, ...]] = {
    "cubeloop": ("cubeloop[sqlite]==0.15.3", "anthropic<1", *FLOOR),
    "cubepi": ("cubepi[sqlite]==0.6.0", "anthropic<1", *FLOOR),
    "pydantic_ai": ("pydantic-ai-slim[anthropic]==2.68.0", *FLOOR, "trio==0.35.0"),
    "openai_agents": ("openai-agents==0.24.0", *FLOOR),
    "langgraph": ("langgraph==1.2.24", "langgraph-checkpoint-sqlite", *FLOOR),
    "agno": ("agno==3.1.10", *FLOOR),
    "strands": ("strands-agents==1.62.0", *FLOOR),
}
WIRES = ("cubeloop", "cubepi", "pydantic_ai")
"""Those whose provider of Anthropic's wire format is measured."""
STORES = ("cubeloop", "cubepi", "langgraph")
NO_COUNTERPART = {("agno", "arguments")}
"""agno's model interface hands over whole calls."""


def arguments() -> Namespace:
    options = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("libraries", nargs="*", help=f"of ours, {', '.join(PEERS)}; all if none")
    options.add_argument("--environments", type=Path, default=HERE.parent / ".venv-peers")
    options.add_argument("--programs", default=",".join(PROGRAMS))
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--cap", type=float, default=20.0)
    options.add_argument("--results", type=Path, default=HERE / "results")
    return options.parse_args()


def python_of(peer: str, environments: Path) -> str:
    """The interpreter of a peer's environment, which is made if there is none."""
    if peer == "ours":
        return sys.executable
    folder = environments / peer
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"== installing {peer}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PEERS[peer]], check=True)
    return str(python)


def measurable(peer: str, program: str) -> bool:
    """Whether there is something to measure."""
    if program == "wire":
        return peer in ("ours", *WIRES)
    if program == "store":
        return peer in ("ours", *STORES)
    return (peer, program) not in NO_COUNTERPART


def rows_of(peer: str, program: str, python: str, chosen: Namespace) -> list[dict[str, Any]]:
    """Run one program for one library; a failure is a row that says so."""
    command = [python, "-W", "ignore", str(HERE / f"bench_{program}.py"), "--library", peer]
    command += ["--rounds", str(chosen.rounds), "--cap", str(chosen.cap)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=chosen.cap * 20)
    except subprocess.TimeoutExpired:
        return [{"benchmark": program, "library": peer, "backend": "-", "failure": "took too long"}]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        print(f"   {peer}: {last[0]}", file=sys.stderr)
        rows.append({"benchmark": program, "library": peer, "backend": "-", "failure": last[0][:200]})
    return rows


def kept_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of an earlier run; each is kept until its work has been measured again."""
    path = folder / "peers.json"
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []


def main() -> None:
    chosen = arguments()
    libraries = chosen.libraries or ["ours", *PEERS]
    programs = chosen.programs.split(",")
    rows = kept_rows(chosen.results)
    pythons = {peer: python_of(peer, chosen.environments) for peer in libraries}
    facts = {"measured": datetime.now(tz=UTC).date().isoformat(), "machine": machine()}
    facts |= {"versions": versions(), "peers": {peer: list(packages) for peer, packages in PEERS.items()}}
    for program in programs:
        for peer in libraries:
            if measurable(peer, program):
                began = time.monotonic()
                found = rows_of(peer, program, pythons[peer], chosen)
                rows = [row for row in rows if (row["benchmark"], row["library"]) != (program, peer)] + found
                print(f"== {program}, {peer}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        keep(chosen.results, "peers", rows, facts)  # after each program, so that a run that is ended has kept something
    report(rows)


def report(rows: list[dict[str, Any]]) -> None:
    """Print the ratio to the floor of each library at each work, a column for each, and this library's targets."""
    columns = [("ours", "trio"), *((library, "asyncio") for library in ("ours", *PEERS))]
    cells: dict[tuple[str, str], dict[tuple[str, str], str]] = {}
    for row in rows:
        if "ratio" in row:
            for column in columns:
                if row["library"] == column[0] and row["backend"] in (column[1], "-"):
                    work = cells.setdefault((row["benchmark"], str(row["size"])), {})
                    work[column] = f"x{row['ratio']['median']:.2f}"
    print(f"\n{'work':<31}" + "".join(f"{library:>15}" for library, _ in columns))
    print(f"{'':<31}" + "".join(f"{backend:>15}" for _, backend in columns))
    for (benchmark, size), of in cells.items():
        print(f"{benchmark:<15}{size:>16}" + "".join(f"{of.get(column, ''):>15}" for column in columns))
    report_targets([row for row in rows if row["library"] == "ours"])


if __name__ == "__main__":
    main()
