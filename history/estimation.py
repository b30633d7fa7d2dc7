"""How many tokens a message takes when nobody has measured it: the one estimator of the project.

It is conservative: a request that it lets through should fit. The rules, in tokens:

- text: a third of its ASCII letters and spaces, four fifths of its ASCII digits and signs, half of its other UTF-8
  bytes. English prose takes about a quarter of its characters, JSON and numbers far more, Chinese one a character.
- every message 8, every text in it 2: roles, separators and part boundaries.
- an image 5,000, whatever its size: more than the largest that Claude, GPT or Gemini models charge for.
- a document 3,000, or a token per 20 bytes if that is more; one that is only referred to, 30,000.
- audio 1,000, or a token per 200 bytes; referred to, 10,000. Video 3,000, or a token per 100 bytes; referred
  to, 30,000.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import ceil
from typing import Final

from laneway.history.dialect import EntryWeight, MediaKind, MediaWeight, MessageDialect, MessageT
from laneway.history.origins import EntryMetadata

__all__ = ["estimate_history", "estimate_message", "estimate_text"]

MESSAGE_TOKENS: Final = 8
TEXT_TOKENS: Final = 2
_DENSE = re.compile(r"[!-@\[-`{-~]")  # ASCII digits and signs: what tokenizers cut smallest

_MEDIA: dict[MediaKind, tuple[int, int | None, int]] = {
    # least tokens, bytes per token (None: size does not matter), tokens of one that is only referred to
    "image": (5_000, None, 5_000),
    "document": (3_000, 20, 30_000),
    "audio": (1_000, 200, 10_000),
    "video": (3_000, 100, 30_000),
}


def estimate_text(text: str) -> int:
    """Tokens of a text, at least as many as a tokenizer would make of ordinary text; 0 for the empty text."""
    dense = len(_DENSE.findall(text))
    if text.isascii():
        return ceil((len(text) - dense) / 3 + dense * 0.8)
    ascii_length = len(text.encode("ascii", "ignore"))
    other_bytes = len(text.encode("utf-8", "surrogatepass")) - ascii_length
    return ceil((ascii_length - dense) / 3 + dense * 0.8 + other_bytes / 2)


def estimate_weight(weight: EntryWeight) -> int:
    """Tokens of one message, by its weight."""
    texts = sum(estimate_text(text) + TEXT_TOKENS for text in weight.texts)
    return MESSAGE_TOKENS + texts + sum(_estimate_media(media) for media in weight.media)


def estimate_message(dialect: MessageDialect[MessageT], message: MessageT) -> int:
    """Tokens of one native message. A message's estimate never changes, so it is stored with the entry."""
    return estimate_weight(dialect.weight(message))


def estimate_history(
    dialect: MessageDialect[MessageT], messages: Sequence[MessageT], entries: Sequence[EntryMetadata]
) -> int:
    """Tokens of a history: a sum over what is stored with the entries, and an estimate of each entry that has none."""
    return sum(
        estimate_message(dialect, message) if entry.estimated_tokens is None else entry.estimated_tokens
        for message, entry in zip(messages, entries, strict=True)
    )


def _estimate_media(media: MediaWeight) -> int:
    least, bytes_per_token, referred = _MEDIA[media.kind]
    if media.size_bytes is None:
        return referred
    return least if bytes_per_token is None else max(least, ceil(media.size_bytes / bytes_per_token))
