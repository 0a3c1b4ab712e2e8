"""Refusals and failures: one table of codes, each with its HTTP status and OpenAI type."""

from typing import NamedTuple

import msgspec


class Code(NamedTuple):
    status: int
    type: str


INVALID = "invalid_request_error"
AUTH = "authentication_error"
NOT_FOUND = "not_found_error"
RATE = "rate_limit_error"
TIMEOUT = "timeout_error"
SERVER = "server_error"

CODES: dict[str, Code] = {
    "invalid_request": Code(400, INVALID),
    "invalid_json": Code(400, INVALID),
    "invalid_type": Code(400, INVALID),
    "invalid_value": Code(400, INVALID),
    "missing_parameter": Code(400, INVALID),
    "unsupported_parameter": Code(400, INVALID),
    "unsupported_content": Code(400, INVALID),
    "context_length_exceeded": Code(400, INVALID),
    "output_too_large": Code(400, INVALID),
    "invalid_deadline": Code(400, INVALID),
    "invalid_event_id": Code(400, INVALID),
    "invalid_record": Code(400, INVALID),
    "bad_id": Code(400, INVALID),
    "invalid_api_key": Code(401, AUTH),
    "model_not_found": Code(404, NOT_FOUND),
    "request_not_found": Code(404, NOT_FOUND),
    "route_not_found": Code(404, NOT_FOUND),
    "method_not_allowed": Code(405, INVALID),
    "request_timeout": Code(408, TIMEOUT),
    "idempotency_conflict": Code(409, INVALID),
    "id_conflict": Code(409, INVALID),
    "request_gone": Code(410, NOT_FOUND),
    "request_too_large": Code(413, INVALID),
    "headers_too_large": Code(431, INVALID),
    "lane_overloaded": Code(429, RATE),
    "quota_exceeded": Code(429, RATE),
    "request_cancelled": Code(499, INVALID),
    "engine_error": Code(500, SERVER),
    "request_kills_workers": Code(500, SERVER),
    "result_too_large": Code(500, SERVER),
    "unreadable": Code(500, SERVER),
    "internal_error": Code(500, SERVER),
    "never_fits": Code(400, INVALID),
    "no_live_worker": Code(503, SERVER),
    "broker_unavailable": Code(503, SERVER),
    "store_unavailable": Code(503, SERVER),
    "lookup_budget": Code(503, SERVER),
    "draining": Code(503, SERVER),
    "deadline_exceeded": Code(504, TIMEOUT),
}


class Error(msgspec.Struct, frozen=True, kw_only=True):
    """The error object of every surface: HTTP body, `done` event, result."""

    message: str
    type: str
    param: str | None = None
    code: str


class Refusal(Exception):
    """Something that a client asked cannot be done; says why, where, and what is allowed."""

    def __init__(
        self, code: str, message: str, *, param: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.retry_after = retry_after  # whole seconds

    @property
    def status(self) -> int:
        return CODES[self.code].status

    @property
    def error(self) -> Error:
        return Error(
            message=self.message, type=CODES[self.code].type, param=self.param, code=self.code
        )
