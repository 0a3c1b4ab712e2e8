"""A client with nothing new to read asks the same again and is answered the same: coded once.

That is most of what an idle broker does.
"""

from __future__ import annotations

import struct

from pipeline.embedded.protocol import Answer, Request, decode, encode

_SMALL_MOST = 16 << 10  # bytes of a frame that is remembered, on every connection
_CORRELATION = struct.Struct(">i")
_AT = 4  # where the correlation id is: in a request after API and version, in an answer after the length


class Repeats:
    """Decodes the requests of one connection and encodes their answers; remembers the last of each."""

    def __init__(self) -> None:
        self._frame = b""
        self._request: Request | None = None
        self._answer: Answer | None = None
        self._sent = b""

    def decode(self, frame: bytes) -> Request:
        """As `protocol.decode`."""
        last = self._request
        if last is not None and len(frame) == len(self._frame) and _same(frame, self._frame):
            return last._replace(correlation=_CORRELATION.unpack_from(frame, _AT)[0])
        request = decode(frame)
        small = len(frame) <= _SMALL_MOST
        self._frame, self._request = (frame, request) if small else (b"", None)
        self._answer = None
        return request

    def encode(self, request: Request, version: int, answer: Answer) -> bytes:
        """As `protocol.encode`."""
        if answer == self._answer:
            return _with_correlation(self._sent, request.correlation)
        sent = encode(request, version, answer)
        small = self._request is not None and len(sent) <= _SMALL_MOST
        self._answer, self._sent = (answer, sent) if small else (None, b"")
        return sent


def _same(one: bytes, other: bytes) -> bool:
    """Whether two requests differ in nothing but their correlation id."""
    return one[:_AT] == other[:_AT] and one[_AT + 4 :] == other[_AT + 4 :]


def _with_correlation(frame: bytes, correlation: int) -> bytes:
    return b"".join((frame[:_AT], _CORRELATION.pack(correlation), frame[_AT + 4 :]))
