"""Token bytes in, text out: never half a character, never a part of a stop string.

The state is a pure function of the tokens pushed so far. A continuation therefore pushes the ids of
its prefix again, throws their pieces away, and holds back what the earlier attempt held back.
"""

import codecs

_utf8 = codecs.getincrementaldecoder("utf-8")


class TextStream:
    """The text of one choice, as it grows.

    Text is held back only while its tail is a proper prefix of a stop string, so an answer without
    such a tail has no added latency. Bytes that no character completes become U+FFFD exactly where
    decoding the whole answer at once would put it, and are dropped at the very end.
    """

    __slots__ = ("_decode", "_held", "_stops", "stop")

    def __init__(self, stops: tuple[str, ...] = ()) -> None:
        self._decode = _utf8("replace").decode
        self._stops = stops
        self._held = ""
        self.stop: str | None = None  # the stop string that ended the answer

    def push(self, token: bytes, *, search: bool = True) -> str:
        """The text that `token` frees, maybe "". Sets `stop` where a stop string is complete.

        `search` is off for tokens below `min_tokens`: no stop string may begin in their text.
        """
        text = self._decode(token)
        if not self._stops or not search:
            return text
        text = self._held + text
        hit = self._earliest(text)
        if hit >= 0:
            self._held = ""
            return text[:hit]
        sent = len(text) - self._ambiguous(text)
        self._held = text[sent:]
        return text[:sent]

    def flush(self) -> str:
        """The text still held back, when no stop string can complete any more."""
        held, self._held = self._held, ""
        return held

    def _earliest(self, text: str) -> int:
        """Where the first complete stop string begins; of two at one place the longer wins."""
        best = -1
        for stop in self._stops:
            at = text.find(stop)
            if at >= 0 and (best < 0 or (at, -len(stop)) < (best, -len(self.stop or ""))):
                best, self.stop = at, stop
        return best

    def _ambiguous(self, text: str) -> int:
        """Length of the longest tail of `text` that is a proper prefix of a stop string."""
        longest = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(text)), longest, -1):
                if text.endswith(stop[:size]):
                    longest = size
                    break
        return longest
