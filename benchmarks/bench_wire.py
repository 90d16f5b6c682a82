"""What does an event from a provider's HTTP stream cost until a listener has heard it?

The server is another process. ``agent`` is a whole run of an agent with a listener, ``provider`` the provider's stream
alone. The floor reads httpx's bytes, splits them into lines and parses each event with jiter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import wire_floor
import workloads
from measure import Row, cpu_seconds, emit, paired_rounds, parse, parser, peak_bytes, run, table
from wire_server import serving

QUESTION = "CPU of an event of Anthropic's wire format, from another process to a listener"
Listen = Callable[[str, Callable[[str], None]], Awaitable[object]]


def hearing(listen: Listen, url: str, events: int) -> Callable[[], Awaitable[int]]:
    """A work that hears ``events`` deltas through ``listen``."""

    async def work() -> int:
        heard = 0

        def on_delta(delta: str) -> None:
            nonlocal heard
            heard += len(delta)

        await listen(url, on_delta)
        assert heard == 4 * events, (heard, events)
        return events

    return work


def measure(library: str, how: str, listen: Listen, backend: str, events: int, rounds: int) -> Row:
    with serving(events) as url:
        mine, floor = hearing(listen, url, events), hearing(wire_floor.listen, url, events)
        run(backend, mine)
        run(backend, floor)
        cpu, floor_cpu, ratio = paired_rounds(
            rounds, lambda: cpu_seconds(backend, mine), lambda: cpu_seconds(backend, floor)
        )
        peaks = peak_bytes(backend, mine), peak_bytes(backend, floor)
    return {
        "benchmark": "wire",
        "library": library,
        "backend": backend,
        "size": how,
        "size_of": "what",
        "unit": "event",
        "events": events,
        "rounds": rounds,
        "cpu_us": cpu,
        "floor_cpu_us": floor_cpu,
        "ratio": ratio,
        "peak_bytes": peaks[0],
        "floor_peak_bytes": peaks[1],
    }


def main() -> None:
    chosen = parse(parser(QUESTION), 7)
    wires: dict[str, Listen] = workloads.module_of(chosen.library).WIRES
    backends: tuple[str, ...] = workloads.load(chosen.library).backends if wires else ()
    rows = [
        measure(chosen.library, how, listen, backend, 200 if chosen.quick else 10_000, chosen.rounds)
        for backend in chosen.backends
        if backend.replace("uvloop", "asyncio") in backends
        for how, listen in wires.items()
    ]
    lines: list[list[object]] = [["backend", "what", "µs/event", "floor", "ratio", "low", "high"]]
    for row in rows:
        emit(row)
        ratio = row["ratio"]
        cells = [row["backend"], row["size"], row["cpu_us"]["median"], row["floor_cpu_us"]["median"]]
        lines.append([*cells, f"x{ratio['median']:.2f}", ratio["low"], ratio["high"]])
    table(lines)


if __name__ == "__main__":
    main()
