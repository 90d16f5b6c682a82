"""Get a validated object from a model."""

import anyio
from pydantic import BaseModel, Field

from cubepi_anyio import FauxProvider, faux_tool_call
from cubepi_anyio.providers.structured import generate_structured


class Train(BaseModel):
    """The next train."""

    platform: int = Field(ge=1)
    leaves_at: str


async def main() -> None:
    provider = FauxProvider()
    provider.set_responses(
        [
            faux_tool_call("structured_output", {"platform": 0, "leaves_at": "9:05"}),
            faux_tool_call("structured_output", {"platform": 3, "leaves_at": "9:05"}),
        ]
    )
    train = await generate_structured(provider.model("scripted"), Train, "When is the next train?")
    print(repr(train))
    print("the model was told:", provider.calls[1].messages[-1].text)


if __name__ == "__main__":
    anyio.run(main)
