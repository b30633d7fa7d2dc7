"""What a graph's turn comes to: its structured response, a channel of its state, or text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from langchain_core.messages import BaseMessage, HumanMessage
from pydantic_core import PydanticSerializationError

from laneway.activities.outputs import OutputForm
from laneway.activities.retries import SerializationFailed
from laneway.errors import StoreError

__all__ = ["Output", "OutputFinder"]

_STRUCTURED: Final = "structured_response"


@dataclass(frozen=True)
class Output:
    """A turn's output.

    Attributes:
        value: as JSON; None where it is the text of the history's last message.
        type: names the type of a structured response.
    """

    value: str | None
    type: str | None = None


@dataclass(frozen=True)
class OutputFinder:
    """Finds a turn's output.

    Attributes:
        key: the channel that holds it; None for the structured response, where the turn has one, else text.
        types: the types of the structured response.
    """

    key: str | None
    types: Sequence[type]

    @property
    def channel(self) -> str:
        """The channel that may hold it."""
        return self.key or _STRUCTURED

    def find(self, said: Sequence[BaseMessage], values: Mapping[str, object], *, is_new: bool) -> Output:
        """The output of a turn.

        Args:
            said: the messages that follow the turn's input.
            values: the graph's state.
            is_new: whether the turn wrote to the channel.

        Raises:
            SerializationFailed: the output cannot be stored.
        """
        value = values.get(self.channel)
        if self.key is not None or (is_new and value is not None):
            return self._stored(value)
        for index in range(len(said) - 1, -1, -1):
            if not isinstance(said[index], HumanMessage) and said[index].text:
                return Output(None if index == len(said) - 1 else json.dumps(str(said[index].text)))
        return Output('""')

    def decode(self, output: str, output_type: str | None = None) -> object:
        """The output that was stored, of its type where that is known.

        Raises:
            StoreError: its type does not take it back.
        """
        if self.key is None and self.types:
            try:
                return self._form.decode(output, output_type)
            except StoreError:
                if output_type is not None:
                    raise
                # Text, of a turn that came to no structured response.
        return json.loads(output)

    @property
    def _form(self) -> OutputForm:
        return OutputForm(() if self.key is not None else self.types)

    def _stored(self, value: object) -> Output:
        try:
            return Output(*self._form.encode(value))
        except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
            raise SerializationFailed(
                f"the output, a {type(value).__name__} in channel {self.channel!r}, cannot be stored: {error}. Outputs "
                "must be JSON values, pydantic models or dataclasses"
            ) from error
