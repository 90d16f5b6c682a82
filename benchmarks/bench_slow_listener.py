"""How much memory does an answer take whose listener is slower than its model?"""

from __future__ import annotations

from measure import Question, ask
from workloads import run_slow_listener

if __name__ == "__main__":
    ask(
        Question(
            name="slow_listener",
            question="Memory (and CPU) of an answer to a listener that is slower than the model; a delta is 4 bytes",
            unit="delta",
            size_of="deltas",
            sizes=(1_000, 4_000, 16_000),
            quick_sizes=(10, 100),
            work=run_slow_listener,
            least_units=2_000,
        )
    )
