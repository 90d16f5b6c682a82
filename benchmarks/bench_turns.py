"""What does a turn cost, the first and the eight hundredth? Each turn is one answer with one call."""

from __future__ import annotations

from measure import Question, ask
from workloads import Library, run_calls


async def work(library: Library, turns: int) -> int:
    return await run_calls(library, turns, 1)


if __name__ == "__main__":
    ask(
        Question(
            name="turns",
            question="CPU of a turn of one call, by the number of turns in the run",
            unit="turn",
            size_of="turns",
            sizes=(10, 50, 200, 800),
            quick_sizes=(2, 8),
            work=work,
            least_units=200,
        )
    )
