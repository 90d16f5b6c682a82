"""What does a tool call cost, in a message with one of them and with hundreds?"""

from __future__ import annotations

from measure import Question, ask
from workloads import Library, run_calls

BATCHES = 4
"""Messages with calls in each run, so that opening and closing the run weigh little."""


async def work(library: Library, calls: int) -> int:
    return await run_calls(library, BATCHES, calls)


if __name__ == "__main__":
    ask(
        Question(
            name="tool_calls",
            question="CPU of a tool call, by the number of parallel calls in one message",
            unit="call",
            size_of="calls",
            sizes=(8, 64, 512),
            quick_sizes=(2, 8),
            work=work,
            least_units=256,
        )
    )
