"""The application that the image runs until it is given one: an agent on the model that LANEWAY_MODEL names."""

from __future__ import annotations

import os

from pydantic_ai import Agent

from laneway import Laneway, PydanticAdapter

# Pydantic AI's "test" model needs no key and no network, so that the stack can be tried as it is.
agent = Agent(os.environ.get("LANEWAY_MODEL", "test"), instructions="Answer in one or two sentences.")

app = Laneway(agents={"assistant": PydanticAdapter(agent)})
