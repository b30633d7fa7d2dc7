"""What `laneway doctor` reports: checks, each with its finding and what to do about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, Self

__all__ = ["Check", "Report", "Status"]

Status = Literal["ok", "warn", "fail"]

_SEVERITY: tuple[Status, ...] = ("ok", "warn", "fail")


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: stable and dotted, such as `redis.eviction`.
        status: `warn` where data is at risk or something could not be seen, `fail` where Laneway cannot work.
        detail: what was found.
        advice: what to do about it; None when all is well.
    """

    name: str
    status: Status
    detail: str
    advice: str | None = None

    @classmethod
    def from_error(cls, name: str, error: Exception) -> Self:
        """A failed check out of an error whose message says what is wrong, a semicolon, and what to do."""
        detail, _, advice = str(error).rpartition("; ")
        return cls(name, "fail", detail or str(error), advice if detail else "see the message")


@dataclass(frozen=True)
class Report:
    """All checks, in the order in which they are worth reading."""

    checks: tuple[Check, ...]

    @property
    def status(self) -> Status:
        """The worst status of any check."""
        found: set[Status] = {check.status for check in self.checks}
        return max(found, key=_SEVERITY.index) if found else "ok"

    def to_json(self) -> dict[str, object]:
        """The report as values that `json.dumps` takes."""
        return {"status": self.status, "checks": [asdict(check) for check in self.checks]}
