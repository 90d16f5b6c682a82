"""What does importing cost, and what does it load?

Each import happens in a new interpreter, from bytecode; the cost of a bare one is taken off. There is one floor for
both: importing what the package stands on, HTTP client included. ``package`` does not load the client; ``provider``
also makes a provider, which does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from statistics import median
from typing import Any

from measure import Row, emit, parse, parser, spread, table

QUESTION = "CPU of importing the package, in milliseconds, and as a multiple of importing what it stands on"
FLOOR = "import anyio, httpx; from pydantic import BaseModel"
STATEMENTS: dict[str, dict[str, str]] = {
    "ours": {
        "package": "import cubepi_anyio",
        "provider": (
            "import cubepi_anyio, httpx; from cubepi_anyio.providers.anthropic import AnthropicProvider; "
            "AnthropicProvider(api_key='k').model('m')"
        ),
    },
    "floor": {"package": FLOOR, "provider": FLOOR},
    "cubeloop": {
        "package": "import cubeloop",
        "provider": "from cubeloop.providers.anthropic import AnthropicProvider",
    },
    "cubepi": {"package": "import cubepi", "provider": "from cubepi.providers.anthropic import AnthropicProvider"},
    "pydantic_ai": {
        "package": "import pydantic_ai",
        "provider": "import pydantic_ai; from pydantic_ai.models.anthropic import AnthropicModel",
    },
    "openai_agents": {"package": "import agents", "provider": "import agents; agents.OpenAIResponsesModel"},
    "langgraph": {"package": "from langgraph.prebuilt import create_react_agent"},
    "agno": {"package": "from agno.agent import Agent"},
    "strands": {"package": "from strands import Agent"},
}
TIMED = """
import json, time
{statement}
print(json.dumps(time.process_time() * 1000))
"""
LOADED = """
import json, sys
{statement}
names = {{name.partition(".")[0] for name in sys.modules}}
from importlib.metadata import packages_distributions
owners = packages_distributions()
print(json.dumps(sorted({{owner for name in names for owner in owners.get(name, ())}})))
"""


Child = Callable[[str, str], Any]
"""Runs a statement within a program in a new interpreter; what that prints last."""


@contextmanager
def children() -> Generator[Child, None, None]:
    """New interpreters that share a cache of bytecode of their own, which an earlier child has filled.

    Whether a tree under measurement may be written to, and whether it was, then makes no difference.
    """
    with tempfile.TemporaryDirectory() as cache:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = cache

        def child(program: str, statement: str) -> Any:
            command = [sys.executable, "-W", "ignore", "-c", program.format(statement=statement)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=env)
            return json.loads(done.stdout.splitlines()[-1])

        yield child


def measure(child: Child, library: str, what: str, statement: str, rounds: int) -> Row:
    bare_loaded = child(LOADED, "pass")
    names = [name for name in child(LOADED, statement) if name not in bare_loaded]
    child(LOADED, FLOOR)  # fills the cache
    costs: dict[str, list[float]] = {"mine": [], "floor": []}
    for number in range(rounds):
        bare = child(TIMED, "pass")
        sides = [("mine", statement), ("floor", FLOOR)]
        for side, imports in sides if number % 2 else reversed(sides):
            costs[side].append(child(TIMED, imports) - bare)
    ratios = [mine / max(floor, 0.001) for mine, floor in zip(costs["mine"], costs["floor"], strict=True)]
    row: dict[str, Any] = {"benchmark": "import", "library": library, "backend": "-", "size": what, "size_of": "what"}
    row |= {"unit": "import", "rounds": rounds, "cpu_ms": round(median(costs["mine"]), 1)}
    row |= {"cpu_ms_spread": spread(costs["mine"], 1), "floor_cpu_ms": round(median(costs["floor"]), 1)}
    return row | {"ratio": spread(ratios), "distributions": len(names), "distribution_names": names}


def main() -> None:
    chosen = parse(parser(QUESTION), 7)
    lines: list[list[object]] = [["what", "ms", "floor", "ratio", "distributions"]]
    with children() as child:
        for what, statement in STATEMENTS.get(chosen.library, {}).items():
            row = measure(child, chosen.library, what, statement, chosen.rounds)
            emit(row)
            ratio = f"x{row['ratio']['median']:.2f}"
            lines.append([what, row["cpu_ms"], row["floor_cpu_ms"], ratio, row["distributions"]])
    table(lines)


if __name__ == "__main__":
    main()
