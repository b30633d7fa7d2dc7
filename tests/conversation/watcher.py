"""What is checked at every request: that it was taken and fits, and that what must be known is in it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.conversation import script
from tests.conversation.arms import Arm
from tests.conversation.talk import input_tokens, is_summary, texts_of
from tests.support.provider import RequestRecord


class Watcher:
    """Checks the requests of each turn as it ends."""

    def __init__(self, arm: Arm, *, first: int) -> None:
        self.arm = arm
        self.first = first
        self.book_was_known = False

    def __call__(self, number: int, requests: Sequence[RequestRecord]) -> None:
        must = self.arm.known_in(number, first=self.first)
        for record in requests:
            assert record.refusal is None
            assert input_tokens(record) <= script.LIMIT_TOKENS
            if is_summary(record):
                continue
            known = script.facts_in(texts_of(record))
            assert must <= known
            assert not self.arm.exactly or known == must
            assert f"turn {number}: " in record.request.prompt
        self.book_was_known |= script.BOOK_FACT in script.facts_in(texts_of(requests[-1]))
