"""A fleet of agents, each with a deadline, watched by one supervisor."""

from dataclasses import dataclass

import anyio

from cubepi_anyio import Agent, FauxProvider, FauxResponse, ProviderUnavailable
from cubepi_anyio.providers.faux import FauxReply


@dataclass
class Job:
    name: str
    script: list[FauxReply]
    seconds: float = 5.0
    attempts: int = 2


async def work(job: Job, report: dict[str, str]) -> None:
    """Run one agent until it has an answer, its time is over, or it has failed often enough."""
    provider = FauxProvider()
    provider.set_responses(job.script)
    agent = Agent(model=provider.model("scripted"))
    report[job.name] = f"no answer within {job.seconds:g} s"
    with anyio.move_on_after(job.seconds):
        for attempt in range(1, job.attempts + 1):
            result = await (agent.prompt("Do your job.") if attempt == 1 else agent.resume())
            report[job.name] = result.text if result.outcome == "completed" else f"gave up: {result.error}"
            if result.outcome == "completed":
                return


async def main() -> None:
    jobs = [
        Job("reader", ["Read 12 files."]),
        Job("searcher", [ProviderUnavailable("the model is down"), "Found it at the second attempt."]),
        Job("writer", [FauxResponse("Once upon a time", stall_before_start=True)], seconds=0.2),
        Job("critic", [ProviderUnavailable("the model is down")] * 2),
    ]
    report: dict[str, str] = {}
    async with anyio.create_task_group() as fleet:
        for job in jobs:
            fleet.start_soon(work, job, report)
    # The block is left when every agent has ended: nothing of them runs here.
    for job in jobs:
        print(f"{job.name:9} {report[job.name]}")


if __name__ == "__main__":
    anyio.run(main, backend="trio")
