"""What does a delta of a call's arguments cost, up to a megabyte of them?"""

from __future__ import annotations

from measure import Question, ask
from workloads import run_arguments

if __name__ == "__main__":
    ask(
        Question(
            name="arguments",
            question="CPU of 16 bytes of one call's arguments to a listener, by the size of the arguments",
            unit="delta",
            size_of="bytes",
            sizes=(10_000, 100_000, 1_000_000),
            quick_sizes=(1_000, 4_000),
            work=run_arguments,
            least_units=50_000,
        )
    )
