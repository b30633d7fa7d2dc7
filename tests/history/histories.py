"""Random valid histories, with their groups known by the way they were made, and random edits of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    CompactionPart,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from tests.history.edits import DIALECT
from tests.support.provider.messages_rules import SUMMARY


@dataclass
class MadeGroup:
    """A group as it was made: its messages, each of one role, and whether it may not be touched."""

    messages: list[ModelMessage]
    protected: bool


@dataclass
class MadeHistory:
    """A history, the groups it was made of, and what a processor sees."""

    groups: list[MadeGroup]
    request_index: int
    native: list[ModelMessage] = field(default_factory=list)

    @property
    def pieces(self) -> list[ModelMessage]:
        return [message for group in self.groups for message in group.messages]

    def owner(self, index: int) -> int:
        """The number of the group that piece `index` is in."""
        return [number for number, group in enumerate(self.groups) for _ in group.messages][index]


class _Maker:
    """Makes messages whose texts are all different, so that a test can tell by content which is which."""

    def __init__(self) -> None:
        self.count = 0

    def text(self, what: str) -> str:
        self.count += 1
        return f"{what} {self.count}"

    def prompt(self, shape: str) -> ModelRequest:
        text = self.text("prompt")
        match shape:
            case "list":
                return ModelRequest(parts=[UserPromptPart([text, TextContent("more")])])
            case "image":
                return ModelRequest(parts=[UserPromptPart([text, ImageUrl("https://images.test/a.png")])])
            case "binary":
                return ModelRequest(
                    parts=[UserPromptPart([text, BinaryContent(b"%PDF", media_type="application/pdf")])]
                )
            case _:
                return ModelRequest(parts=[UserPromptPart(text)])

    def exchange(self, answers: Sequence[str]) -> list[ModelMessage]:
        calls: list[ModelResponsePart] = []
        results: list[ModelRequestPart] = []
        for answer in answers:
            name = self.text("call").replace(" ", "-")
            calls.append(ToolCallPart("stock", {"q": name}, name))
            results.append(
                ToolReturnPart("stock", self.text("try again"), name, outcome="retried")
                if answer == "retry"
                else ToolReturnPart("stock", {"left": self.text("result")}, name)
            )
        return [ModelResponse(parts=calls), ModelRequest(parts=results)]

    def feedback(self) -> list[ModelMessage]:
        """An answer that the framework could not use, and its request for another."""
        refused = RetryFeedbackPart(self.text("invalid"), retry=RetryInfo(cause="model_retry"))
        return [ModelResponse(parts=[TextPart(self.text("nonsense"))]), ModelRequest(parts=[refused])]

    def answer(self, kind: str) -> ModelResponse:
        text = TextPart(self.text("answer"))
        match kind:
            case "signed":
                thinking = ThinkingPart(self.text("thought"), signature="sig", provider_name="anthropic")
                return ModelResponse(parts=[thinking, text], provider_name="anthropic")
            case "unsigned":
                return ModelResponse(parts=[ThinkingPart(self.text("thought"), signature=""), text])
            case "native":
                item = self.text("native").replace(" ", "-")  # no provider gives an item's id twice
                call = NativeToolCallPart("web_search", {"q": "x"}, item, provider_name="openai")
                result = NativeToolReturnPart("web_search", {"hits": 1}, item, provider_name="openai")
                return ModelResponse(parts=[call, result, text], provider_name="openai")
            case "compaction":
                return ModelResponse(parts=[CompactionPart(SUMMARY, provider_name="anthropic"), text])
            case "suspended":
                return ModelResponse(parts=[text], state="suspended")
            case _:
                return ModelResponse(parts=[text])


_ANSWERS = ("text",) * 9 + ("unsigned", "unsigned", "signed", "native", "compaction", "suspended")
_PROTECTING = {"signed", "native", "compaction", "suspended"}


@st.composite
def histories(draw: st.DrawFn, max_cycles: int = 4) -> MadeHistory:
    """Valid histories: cycles with and without tools, system text between them, a tool loop at the end or not."""
    maker = _Maker()
    groups: list[MadeGroup] = []
    exchanges = st.lists(st.lists(st.sampled_from(["result", "retry"]), min_size=1, max_size=2), max_size=2)
    for _ in range(draw(st.integers(1, max_cycles))):
        if draw(st.integers(0, 4)) == 0:
            groups.append(MadeGroup([ModelRequest(parts=[SystemPromptPart(maker.text("system"))])], True))
        messages: list[ModelMessage] = [maker.prompt(draw(st.sampled_from(["text", "list", "image", "binary"])))]
        for answers in draw(exchanges):
            messages += maker.exchange(answers)
        if draw(st.integers(0, 5)) == 0:
            messages += maker.feedback()
        kind = draw(st.sampled_from(_ANSWERS))
        # A cycle that ends with an output tool's result has no text after it: the result is merged with what follows.
        if messages[-1].parts[0].part_kind != "tool-return" or kind in _PROTECTING or draw(st.integers(0, 3)):
            messages.append(maker.answer(kind))
        else:
            kind = "text"
        groups.append(MadeGroup(messages, kind in _PROTECTING))
    if draw(st.integers(0, 3)) == 0:
        groups.append(MadeGroup([ModelRequest(parts=[SystemPromptPart(maker.text("system"))])], True))
    current: list[ModelMessage] = [maker.prompt("text")]
    rounds = draw(exchanges)
    for answers in rounds:
        current += maker.exchange(answers)
    groups.append(MadeGroup(current, True))
    made = MadeHistory(groups, request_index=len(rounds) + 1)
    made.native = [message for message, _ in DIALECT.settle(made.pieces)]
    return made


@dataclass(frozen=True)
class Token:
    """One returned message: input piece `old`, or something new."""

    old: int | None
    kind: str = ""


NEW_KINDS = (
    "user",
    "model",
    "empty",
    "blank",
    "system",
    "result",
    "call",
    "signed",
    "image",
    "response_id",
    "compaction",
)
PLAIN = {"user", "model"}


def new_message(kind: str, number: int) -> ModelMessage:
    """A message that a processor makes up."""
    match kind:
        case "user":
            return ModelRequest(parts=[UserPromptPart(f"note {number}")])
        case "model":
            return ModelResponse(parts=[TextPart(f"summary {number}")])
        case "empty":
            return ModelRequest(parts=[UserPromptPart("")])
        case "blank":
            return ModelResponse(parts=[TextPart(" \n")])
        case "system":
            return ModelRequest(parts=[SystemPromptPart(f"rules {number}")])
        case "result":
            return ModelRequest(parts=[ToolReturnPart("stock", "ghost", f"ghost-{number}")])
        case "call":
            return ModelResponse(parts=[ToolCallPart("stock", {}, f"ghost-{number}")])
        case "signed":
            return ModelResponse(parts=[ThinkingPart("made up", signature="x", provider_name="anthropic")])
        case "image":
            return ModelRequest(parts=[UserPromptPart([f"see {number}", ImageUrl("https://images.test/b.png")])])
        case "response_id":
            return ModelResponse(parts=[TextPart(f"summary {number}")], provider_response_id=f"resp_{number}")
        case "compaction":
            return ModelRequest(parts=[CompactionPart(f"summary {number}")])
        case unknown:
            raise AssertionError(unknown)


def changed(message: ModelMessage) -> ModelMessage:
    """A message that says something else than it did, of the same shape."""
    parts = [
        replace(part, tool_name="changed")
        if isinstance(part, ToolCallPart | NativeToolCallPart)
        else replace(part, content="changed")
        for part in message.parts
    ]
    return replace(message, parts=parts)  # type: ignore[arg-type, return-value]


@st.composite
def edits(draw: st.DrawFn, made: MadeHistory) -> list[Token]:
    """Edits, valid and not: some operations on whole groups, some on single messages."""
    groups: list[list[Token]] = []
    start = 0
    for group in made.groups:
        groups.append([Token(start + offset) for offset in range(len(group.messages))])
        start += len(group.messages)
    for _ in range(draw(st.sampled_from([1, 1, 2, 3, 0]))):
        if not groups:
            break
        at = draw(st.integers(0, len(groups) - 1))
        match draw(st.sampled_from(["drop", "drop", "swap", "move", "text", "again"])):
            case "drop":
                groups.pop(at if draw(st.integers(0, 4)) == 0 else min(at, max(len(groups) - 2, 0)))
            case "swap" if at + 1 < len(groups):
                groups[at], groups[at + 1] = groups[at + 1], groups[at]
            case "move":
                group = groups.pop(at)
                groups.insert(draw(st.integers(0, len(groups))), group)
            case "text":
                groups.insert(at, [Token(None, draw(st.sampled_from(NEW_KINDS)))])
            case "again":
                groups.insert(draw(st.integers(0, len(groups))), list(groups[at]))
            case _:
                pass
    tokens = [token for group in groups for token in group]
    for _ in range(draw(st.sampled_from([0, 0, 0, 0, 1, 2]))):
        if not tokens:
            break
        at = draw(st.integers(0, len(tokens) - 1))
        match draw(st.sampled_from(["drop", "change", "insert", "move"])):
            case "drop":
                tokens.pop(at)
            case "change" if tokens[at].old is not None:
                tokens[at] = Token(tokens[at].old, "changed")
            case "insert" | "change":
                tokens.insert(at, Token(None, draw(st.sampled_from(NEW_KINDS))))
            case _:
                token = tokens.pop(at)
                tokens.insert(draw(st.integers(0, len(tokens))), token)
    return tokens
