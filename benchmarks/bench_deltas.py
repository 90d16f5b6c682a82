"""What does a text delta cost, in a short answer and in a long one? One listener hears each."""

from __future__ import annotations

from measure import Question, ask
from workloads import run_deltas

if __name__ == "__main__":
    ask(
        Question(
            name="deltas",
            question="CPU of a text delta to a listener, by the number of deltas in the answer",
            unit="delta",
            size_of="deltas",
            sizes=(100, 1_000, 10_000, 50_000),
            quick_sizes=(10, 100),
            work=run_deltas,
            least_units=5_000,
        )
    )
