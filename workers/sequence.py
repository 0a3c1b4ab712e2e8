"""One choice of one job inside the engine: its tokens, its blocks, its text."""

from collections.abc import Sequence as Seq

from kernels.blocks import chain, root, token_bytes
from workers.job import Emission, Job, Prefix, TokenLogprob
from workers.speculate import PromptLookup
from workers.text import TextStream


class Sequence:
    """Tokens `ids[:computed]` have their keys and values in `blocks`; the others do not yet.

    There is no prefill state and no decode state: a sequence that lacks one token decodes, one that
    lacks more is in prefill, one that was preempted lacks all.
    """

    __slots__ = (
        "arrival",
        "blocks",
        "cached",
        "choice",
        "computed",
        "digests",
        "drafts",
        "finish",
        "ids",
        "job",
        "lookup",
        "parent",
        "preemptions",
        "prompt",
        "registered",
        "since_ms",
        "skipped",
        "swapped",
        "text",
    )

    def __init__(self, job: Job, choice: int, arrival: int, now_ms: int, revision: str) -> None:
        self.job = job
        self.choice = choice
        self.arrival = arrival  # order of coming, kept through preemptions
        self.since_ms = now_ms  # waiting since
        self.ids = list(job.prompt_ids)
        self.prompt = len(self.ids)
        self.computed = 0
        self.blocks: list[int] = []
        self.parent = root(revision, "", job.salt)  # the middle part is for an adapter's version
        self.digests: list[bytes] = []  # of the full blocks, as far as they were needed
        self.registered = 0  # full blocks offered to the prefix cache
        self.cached = 0  # tokens that the prefix cache gave before anything was computed
        self.drafts: list[int] = []  # guesses for the next tokens, verified in the next step
        self.lookup: PromptLookup | None = None
        self.swapped: object | None = None  # keys and values in host memory
        self.text = TextStream(job.sampling.stop)
        self.finish: str | None = None
        self.preemptions = 0
        self.skipped = 0  # times another one was admitted before it because it did not fit

    @property
    def key(self) -> tuple[str, int]:
        return self.job.request_id, self.job.attempt

    @property
    def prefix(self) -> Prefix:
        return self.job.prefix[self.choice] if self.choice < len(self.job.prefix) else Prefix()

    @property
    def generated(self) -> int:
        """Tokens said so far, an earlier attempt's included."""
        return len(self.ids) - self.prompt

    @property
    def suspect(self) -> bool:
        """Of killing its worker, until it has said a token of its own: it has no company so long."""
        return self.job.alone and self.generated <= len(self.prefix.ids)

    @property
    def uncomputed(self) -> int:
        return len(self.ids) - self.computed

    @property
    def decoding(self) -> bool:
        return len(self.ids) - self.computed == 1

    @property
    def left(self) -> int:
        """Tokens it may still say."""
        return self.job.max_tokens - self.generated

    def append(self, token: int, data: bytes, *, eos: bool) -> str:
        """Take the next token; returns its piece of text, and sets `finish` where it is the last."""
        sampling = self.job.sampling
        search = self.generated >= sampling.min_tokens
        self.ids.append(token)
        if eos and search and not sampling.ignore_eos:
            self.finish = "stop"
            return self.text.flush()
        piece = self.text.push(data, search=search)
        if self.text.stop is not None:
            self.finish = "stop"
        elif self.left <= 0:
            self.finish = "length"
            piece += self.text.flush()
        return piece

    def emission(self, k: int, pieces: Seq[str] = (), logprobs: Seq[TokenLogprob] = ()) -> Emission:
        """What was said from token k on."""
        begins = not self.choice and k == len(self.prefix.ids)
        return Emission(
            request_id=self.job.request_id,
            attempt=self.job.attempt,
            choice=self.choice,
            k=k,
            ids=tuple(self.ids[self.prompt + k :]),
            pieces=tuple(pieces),
            logprobs=tuple(logprobs),
            finish=self.finish,
            cached_tokens=min(self.cached, self.prompt) if begins else 0,
        )

    def digest(self, index: int, size: int) -> bytes:
        """The chained digest of full block `index`, blocks of `size` tokens."""
        while len(self.digests) <= index:
            end = (len(self.digests) + 1) * size
            parent = self.digests[-1] if self.digests else self.parent
            self.digests.append(chain(parent, token_bytes(self.ids[end - size : end])))
        return self.digests[index]
