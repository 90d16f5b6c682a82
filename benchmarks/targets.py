"""What the library is meant to reach, as conditions on the rows that the programs print."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """One figure and its bound. ``figure`` takes the rows of one benchmark on one backend; ``nan`` if it is absent."""

    benchmark: str
    work: str
    bound: float
    figure: Callable[[Sequence[Row]], float]
    sign: str = "x"
    """``x`` marks a ratio to the floor; otherwise the unit of the figure."""
    cost: str = ""
    """What the figure consists of, by profile: the explanation where the bound is not reached."""

    def text(self, value: float) -> str:
        """A figure as it is printed."""
        digits = f"{value:.2f}" if abs(value) < 20 else f"{value:.0f}"
        return f"x{digits}" if self.sign == "x" else f"{digits} {self.sign}".rstrip()


def ratio_at(size: object) -> Callable[[Sequence[Row]], float]:
    """The median ratio to the floor at a size."""
    return lambda rows: next((row["ratio"]["median"] for row in rows if row.get("size") == size), math.nan)


def worst_ratio(rows: Sequence[Row]) -> float:
    """The largest median ratio over the sizes."""
    return max((row["ratio"]["median"] for row in rows if "ratio" in row), default=math.nan)


def largest_ratio(rows: Sequence[Row]) -> float:
    """The median ratio at the largest size."""
    return next((row["ratio"]["median"] for row in reversed(rows) if "ratio" in row), math.nan)


def field(key: str, **having: object) -> Callable[[Sequence[Row]], float]:
    """A field of the first row that has it and the given others."""
    return lambda rows: next(
        (row[key] for row in rows if row.get(key) is not None and having.items() <= row.items()), math.nan
    )


def kilobytes(backend: str) -> Callable[[Sequence[Row]], float]:
    """Memory for each unit of size on one backend."""
    return lambda rows: field("bytes_per_size", backend=backend)(rows) / 1000


def times_text(rows: Sequence[Row]) -> float:
    """Bytes that each further delta of four bytes takes, as a multiple of its text."""
    return field("bytes_per_size")(rows) / 4


CALL = (
    "a third is the task, which the floor has too; besides, each call has a scope of its own and asks, before its tool "
    "begins, whether its run has been ended; the rest are the models and events of which the model's call and its "
    "answer are made, and the record of the call"
)
TURN = (
    "the answer is produced in a task of its own, which is woken and waits for its reader: two steps of the event "
    "loop, and a scope with the time the model may be silent, of which the floor has none"
)
RUN = (
    "the answers of a run are produced in a task from which the run reads, so an agent that waits for its model has "
    "two tasks and a stream; when the answer was produced in the task of the run, it had 32 kB on asyncio and 24 on "
    "trio. On asyncio the run itself has a task too, because Task.cancel() would break the shields of tools"
)
ENDING = "each call gets a result that says why it has none, where the floor forgets its calls"
IMPORT = (
    "the package takes as long as the HTTP client, which it does not load: two fifths are dataclasses, a fifth is "
    "pydantic's that the floor leaves out, the rest its modules; a provider loads the client too. The bound is what it "
    "was at commit 9582f7b (import_before.json) and a tenth for the noise of the machine"
)

TARGETS: tuple[Target, ...] = (
    Target("tool_calls", "tool call, 64 parallel", 3, ratio_at(64), cost=CALL),
    Target("tool_calls", "tool call, 512 parallel", 3, ratio_at(512), cost=CALL),
    Target("tool_calls", "tool calls: cost per call grows by size^", 0.1, field("exponent"), ""),
    Target("turns", "turn of one call, 200 turns", 4, ratio_at(200), cost=TURN),
    Target("turns", "turns: cost per turn grows by size^", 0.1, field("exponent"), ""),
    Target("turns", "turns: memory grows by size^", 1.1, field("peak_exponent"), ""),
    Target("deltas", "text delta, 10 000", 3, ratio_at(10_000)),
    Target("deltas", "text delta, 50 000", 3, ratio_at(50_000)),
    Target("deltas", "text deltas: cost per delta grows by size^", 0.1, field("exponent"), ""),
    Target("slow_listener", "slow listener: memory for each byte of text", 3, times_text, "bytes"),
    Target("arguments", "argument delta, 100 kB", 4, ratio_at(100_000)),
    Target("arguments", "argument delta, 1 MB", 4, ratio_at(1_000_000)),
    Target("arguments", "arguments: cost per delta grows by size^", 0.1, field("exponent"), ""),
    Target("many_agents", "run, 1 000 agents at once", 4, ratio_at(1_000), cost=RUN),
    Target("many_agents", "run, 5 000 agents at once", 4, ratio_at(5_000), cost=RUN),
    Target("many_agents", "memory of an agent on asyncio", 32, kilobytes("asyncio"), "kB", RUN),
    Target("many_agents", "memory of an agent on trio", 24, kilobytes("trio"), "kB", RUN),
    Target("cancel", "abort of 64 sleeping tools", 2, ratio_at("abort"), cost=ENDING),
    Target("cancel", "cancelled scope around 64 sleeping tools", 2, ratio_at("cancel"), cost=ENDING),
    Target("cancel", "cancel of a silent HTTP stream", 2, ratio_at("silent stream")),
    Target("cancel", "tasks left", 0, field("tasks_left"), "tasks"),
    Target("import", "import cubepi_anyio", 1.1, ratio_at("package"), cost=IMPORT),
    Target("import", "import with a provider", 1.75, ratio_at("provider"), cost=IMPORT),
    Target("import", "distributions", 8, field("distributions"), ""),
    Target("wire", "10 000 wire events to a listener", 2.5, ratio_at("agent")),
)


def judge(rows: Sequence[Row]) -> list[tuple[Target, str, float, bool]]:
    """Target, backend, figure and whether it is met, for each target and backend that ``rows`` tell of."""
    found: list[tuple[Target, str, float, bool]] = []
    for target in TARGETS:
        of_it = [row for row in rows if row["benchmark"] == target.benchmark]
        for backend in dict.fromkeys(row["backend"] for row in of_it):
            value = target.figure([row for row in of_it if row["backend"] == backend])
            if not math.isnan(value):
                found.append((target, backend, value, value <= target.bound))
    return found
