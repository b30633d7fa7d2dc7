"""What editing must decide, worked out the slow way: by listing every order of groups that is allowed.

It shares nothing with the code under test: it knows the groups from how the history was made, and which message is
which from how the edit was made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from tests.history.histories import PLAIN, MadeHistory, Token


def is_allowed(made: MadeHistory, tokens: Sequence[Token]) -> bool:
    """Whether an edit is valid."""
    tokens = [_as_new(made, token) for token in tokens]
    if any(token.old is None and token.kind not in PLAIN for token in tokens):
        return False
    old = tuple(made.owner(token.old) for token in tokens if token.old is not None)
    indices = tuple(token.old for token in tokens if token.old is not None)
    for order in _orders(made):
        expected = tuple(index for number in order for index in _indices(made, number))
        if expected == indices and _is_text_between(made, tokens, order):
            return _opens_well(made, tokens) and bool(old)
    return False


def _as_new(made: MadeHistory, token: Token) -> Token:
    """A changed message is a new one: plain text if all that it ever was is text."""
    if token.kind != "changed" or token.old is None:
        return token
    message = made.pieces[token.old]
    if isinstance(message, ModelRequest):
        is_text = all(isinstance(part, UserPromptPart) for part in message.parts)
        return Token(None, "user" if is_text else "system")
    is_text = all(part.part_kind == "text" for part in message.parts) and message.state == "complete"
    return Token(None, "model" if is_text else "signed")


def _orders(made: MadeHistory) -> Iterator[tuple[int, ...]]:
    segments: list[list[int]] = [[]]
    protected: list[int] = []
    for number, group in enumerate(made.groups):
        if group.protected:
            protected.append(number)
            segments.append([])
        else:
            segments[-1].append(number)
    choices = [
        [order for size in range(len(segment) + 1) for order in permutations(segment, size)] for segment in segments
    ]
    for chosen in product(*choices):
        result: list[int] = []
        for number, order in enumerate(chosen):
            result += order
            if number < len(protected):
                result.append(protected[number])
        yield tuple(result)


def _indices(made: MadeHistory, number: int) -> range:
    start = sum(len(group.messages) for group in made.groups[:number])
    return range(start, start + len(made.groups[number].messages))


def _is_text_between(made: MadeHistory, tokens: Sequence[Token], order: Sequence[int]) -> bool:
    """Whether what is new stands between groups, none of it inside one or after the last."""
    boundaries: set[int] = set()
    passed = 0
    for number in order:
        boundaries.add(passed)
        passed += len(made.groups[number].messages)
    seen = 0
    for token in tokens:
        if token.old is None and seen not in boundaries:
            return False
        seen += token.old is not None
    return True


def _opens_well(made: MadeHistory, tokens: Sequence[Token]) -> bool:
    for token in tokens:
        if token.old is None:
            return token.kind != "model"
        message = made.pieces[token.old]
        if not all(isinstance(part, SystemPromptPart) for part in message.parts):
            return isinstance(message, ModelRequest)
    return True


def why_unsendable(messages: Sequence[ModelMessage]) -> str | None:
    """What a strict provider would refuse a history for; None if it would take it."""
    if not messages or not isinstance(messages[-1], ModelRequest):
        return "does not end with a request"
    open_calls: list[str] = []
    used: set[str] = set()
    for message in messages:
        if isinstance(message, ModelResponse):
            if open_calls:
                return f"unanswered calls {open_calls}"
            open_calls = [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]
            if used & set(open_calls) or len(set(open_calls)) < len(open_calls):
                return f"reused ids in {open_calls}"
            used |= set(open_calls)
            continue
        for part in message.parts:
            if isinstance(part, ToolReturnPart | RetryPromptPart):
                if part.tool_call_id not in open_calls:
                    return f"result without a call: {part.tool_call_id}"
                open_calls.remove(part.tool_call_id)
            elif open_calls and not isinstance(part, SystemPromptPart):
                return f"something said before the answer to {open_calls}"
        if open_calls:
            return f"unanswered calls {open_calls}"
    first = next(m for m in messages if not all(isinstance(part, SystemPromptPart) for part in m.parts))
    return None if isinstance(first, ModelRequest) else "opens with the model"
