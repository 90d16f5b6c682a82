"""What does a run cost when thousands of agents run at once? Each has one call, and all wait in it together."""

from __future__ import annotations

from measure import Question, ask
from workloads import run_many

if __name__ == "__main__":
    ask(
        Question(
            name="many_agents",
            question="CPU and memory of a run with one call, by the number of agents that run at once",
            unit="run",
            size_of="agents",
            sizes=(1_000, 5_000),
            quick_sizes=(10, 40),
            work=run_many,
            rounds=5,
            largest_traced=1_000,
        )
    )
