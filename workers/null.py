"""An engine without a model: for load tests of the pipeline, and for the simulation.

Token k of a choice is a pure function of (prompt ids, seed, choice, k), so a second attempt goes on
exactly as the first would have, and a reader can check an answer without any model. With
`vary_attempt` it is a function of the attempt too: what a worker on another device might say.
"""

import zlib
from array import array
from dataclasses import dataclass
from itertools import product
from math import log
from typing import Protocol

from workers.job import Capacity, Emission, Failure, Job, Prefix, TokenLogprob
from workers.text import TextStream

SYLLABLES = tuple(a + b for a, b in product("bdfgklmnprstvwyz", "ai"))
WORDS = tuple(f" {a}{b}" for a, b in product(SYLLABLES, SYLLABLES))  # 1,024 words, the vocabulary
_BYTES = tuple(word.encode() for word in WORDS)
_BURST = 16  # tokens a choice gets in one step at most, so that a long answer is still a stream
_MASK = (1 << 64) - 1


class Clock(Protocol):
    """Wall time in milliseconds; the simulation hands in its own."""

    def ms(self) -> int: ...


def token_key(prompt_ids: bytes, seed: int, choice: int, attempt: int = 0) -> int:
    """What all tokens of a choice are drawn from."""
    key = zlib.crc32(prompt_ids) | (zlib.adler32(prompt_ids) << 32)
    return (key ^ (seed * 0x9E3779B97F4A7C15) ^ (choice << 56) ^ (attempt << 48)) & _MASK


def token(key: int, k: int) -> int:
    """Token k: the splitmix64 finaliser over key and counter (Steele et al., 2014)."""
    x = (key + (k + 1) * 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return (x >> 31) % len(WORDS)


@dataclass(slots=True)
class _Choice:
    job: Job
    index: int
    key: int
    begun_ms: int
    said: int  # tokens so far, the prefix included
    first: int  # tokens of the prefix
    text: TextStream | None  # None: no stop strings, the words are the pieces


class NullEngine:
    """Implements `workers.job.Engine`; needs no torch, no thread and no clock but the given one.

    `rate` is tokens a second of each choice, 0 as fast as `step` is called.
    """

    device_type = "null"  # the same words on every machine, and no model's

    def __init__(
        self, rate: float = 0, vary_attempt: bool = False, slots: int = 64, *, clock: Clock
    ) -> None:
        if rate < 0 or slots < 1:
            raise ValueError(f"rate must be >= 0 and slots >= 1, not {rate} and {slots}")
        self._rate = rate
        self._vary = vary_attempt
        self._slots = slots
        self._clock = clock
        self._waiting: dict[tuple[str, int], Job] = {}
        self._running: dict[tuple[str, int], list[_Choice]] = {}
        self._steps = self._tokens = self._batch_tokens = self._max_occupancy = 0

    def add(self, job: Job) -> None:
        self._waiting[job.request_id, job.attempt] = job

    def cancel(self, request_id: str, attempt: int | None = None) -> bool:
        found = False
        for jobs in (self._waiting, self._running):
            for key in [k for k in jobs if k[0] == request_id]:
                if attempt is None or key[1] <= attempt:
                    del jobs[key]
                    found = True
        return found

    def step(self) -> list[Emission | Failure]:
        now = self._clock.ms()
        while self._waiting and len(self._running) < self._slots:
            key = next(iter(self._waiting))
            self._running[key] = self._begin(self._waiting.pop(key), now)
        out: list[Emission | Failure] = []
        occupancy = 0
        for key, choices in list(self._running.items()):
            occupancy += len(choices)
            left = [c for c in choices if not self._advance(c, now, out)]
            if left:
                self._running[key] = left
            else:
                del self._running[key]
        self._batch_tokens = sum(len(e.ids) for e in out if isinstance(e, Emission))
        self._tokens += self._batch_tokens
        self._steps += bool(out)
        self._max_occupancy = max(self._max_occupancy, occupancy)
        return out

    def has_work(self) -> bool:
        return bool(self._waiting or self._running)

    def wait_ms(self) -> float:
        if not self._rate or not self._running or (self._waiting and self._free_slots()):
            return 0.0
        now = self._clock.ms()
        due = min(
            c.begun_ms + (c.said - c.first + 1) * 1000 / self._rate
            for choices in self._running.values()
            for c in choices
        )
        return max(0.0, due - now)

    def capacity(self) -> Capacity:
        return Capacity(
            running=len(self._running),
            waiting=len(self._waiting),
            slots=self._slots,
            blocks_total=self._slots,
            blocks_used=len(self._running),
            blocks_cached=0,
            batch_tokens=self._batch_tokens,
            steps=self._steps,
            tokens=self._tokens,
            max_occupancy=self._max_occupancy,
        )

    def token_text(self, token_id: int) -> bytes:
        return _BYTES[token_id]

    def close(self) -> None:
        self._waiting.clear()
        self._running.clear()

    def _free_slots(self) -> int:
        return self._slots - len(self._running)

    def _begin(self, job: Job, now: int) -> list[_Choice]:
        prompt = array("I", job.prompt_ids).tobytes()
        choices = []
        for index in range(job.n):
            prefix = job.prefix[index] if index < len(job.prefix) else Prefix()
            if prefix.finish is not None:
                continue
            key = token_key(prompt, job.sampling.seed, index, job.attempt if self._vary else 0)
            text = TextStream(job.sampling.stop) if job.sampling.stop else None
            said = len(prefix.ids)
            choice = _Choice(job, index, key, now, said, said, text)
            if text is not None:
                for k, id in enumerate(prefix.ids):
                    text.push(_BYTES[id], search=k >= job.sampling.min_tokens)
            choices.append(choice)
        return choices

    def _advance(self, choice: _Choice, now: int, out: list[Emission | Failure]) -> bool:
        """Emit what is due of one choice; True when it has ended."""
        job, k, text = choice.job, choice.said, choice.text
        left = job.max_tokens - k
        due = _BURST
        if self._rate:
            due = int((now - choice.begun_ms) * self._rate / 1000) - (k - choice.first)
        stopped = text is not None and text.stop is not None  # the prefix ended with it already
        size = 0 if stopped else min(left, due)
        if size <= 0 and left > 0 and not stopped:
            return False
        ids: tuple[int, ...] = tuple([token(choice.key, i) for i in range(k, k + size)])
        finish = "stop" if stopped else "length" if size >= left else None
        if text is None:
            pieces = tuple([WORDS[id] for id in ids])
        else:
            ids, pieces = _speak(text, ids, k, job.sampling.min_tokens, last=finish is not None)
            finish = "stop" if text.stop is not None else finish
        choice.said = k + len(ids)
        out.append(
            Emission(
                request_id=job.request_id,
                attempt=job.attempt,
                choice=choice.index,
                k=k,
                ids=ids,
                pieces=pieces,
                logprobs=_logprobs(job, ids),
                finish=finish,
            )
        )
        return finish is not None


def _speak(
    text: TextStream, ids: tuple[int, ...], k: int, min_tokens: int, *, last: bool
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Tokens up to a stop string, and their pieces."""
    pieces: list[str] = []
    for i, id in enumerate(ids):
        pieces.append(text.push(_BYTES[id], search=k + i >= min_tokens))
        if text.stop is not None:
            return ids[: i + 1], tuple(pieces)
    if last and pieces:
        pieces[-1] += text.flush()
    return ids, tuple(pieces)


def _logprobs(job: Job, ids: tuple[int, ...]) -> tuple[TokenLogprob, ...]:
    """Every word is as likely as every other."""
    if not job.sampling.logprobs:
        return ()
    uniform = -log(len(WORDS))
    return tuple(
        TokenLogprob(
            id=id,
            logprob=uniform,
            top=tuple(((id + i) % len(WORDS), uniform) for i in range(job.sampling.top_logprobs)),
        )
        for id in ids
    )
