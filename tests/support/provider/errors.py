"""Refusals, and the error bodies of the two providers."""

from __future__ import annotations

from tests.support.provider.transcript import Api, Json


class Refusal(Exception):
    """The server refuses a request; ``error_body`` tells it in the provider's words.

    ``kind`` is the error's ``type`` on the wire; left out, it follows from the status.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str | None = None,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = headers or {}


_OPENAI: dict[int, tuple[str, str | None, str]] = {
    400: ("invalid_request_error", None, "Your request was malformed or missing some required parameters."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: (
        "invalid_request_error",
        "unsupported_country_region_territory",
        "Country, region, or territory not supported",
    ),
    404: ("invalid_request_error", "model_not_found", "The model does not exist or you do not have access to it."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached for requests. Please try again later."),
    500: ("server_error", None, "The server had an error while processing your request. Sorry about that!"),
    503: ("server_error", None, "The engine is currently overloaded, please try again later"),
}
_ANTHROPIC: dict[int, tuple[str, str]] = {
    400: ("invalid_request_error", "invalid request"),
    401: ("authentication_error", "invalid x-api-key"),
    403: ("permission_error", "Your API key does not have permission to use the specified resource."),
    404: ("not_found_error", "Not found"),
    413: ("request_too_large", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed the rate limit for your organization."),
    500: ("api_error", "Internal server error"),
    503: ("api_error", "Service unavailable"),
    529: ("overloaded_error", "Overloaded"),
}


def error_body(api: Api, refusal: Refusal, request_id: str) -> Json:
    """The body that the provider of ``api`` sends for a refusal."""
    if api == "messages":
        kind, _ = _ANTHROPIC.get(refusal.status, ("api_error", ""))
        return {
            "type": "error",
            "error": {"type": refusal.kind or kind, "message": refusal.message},
            "request_id": request_id,
        }
    kind, _, _ = _OPENAI.get(refusal.status, ("server_error", None, ""))
    return {
        "error": {
            "message": refusal.message,
            "type": refusal.kind or kind,
            "param": refusal.param,
            "code": refusal.code,
        }
    }


def status_refusal(
    api: Api, status: int, *, message: str | None = None, headers: dict[str, str] | None = None
) -> Refusal:
    """The refusal that an injected status stands for, with the provider's usual text."""
    if api == "messages":
        _, usual = _ANTHROPIC.get(status, ("api_error", f"Error {status}"))
        return Refusal(message or usual, status=status, headers=headers)
    kind, code, usual = _OPENAI.get(status, ("server_error", None, f"Error {status}"))
    return Refusal(message or usual, status=status, kind=kind, code=code, headers=headers)
