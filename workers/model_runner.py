"""Runs a step's work on a model: pack, forward, draw; and moves keys and values to the host."""

import time
from collections.abc import Sequence

import torch

from kernels.batch import Row, pack
from kernels.kv_cache import KVCache
from kernels.model import Model
from kernels.sampling import Drawn, DrawParams, draw
from workers.job import Sampling, TokenLogprob
from workers.planner import Work
from workers.runner import DeviceLost, DeviceOutOfMemory, Draws
from workers.sequence import Sequence as Said

_SEVERAL = 5  # tokens of a step that is timed against a step of one: about what drafts make it


class ModelRunner:
    """Implements `workers.runner.Runner` over `kernels`.

    `swap_bytes` bounds the host memory of sequences that are swapped out.
    """

    def __init__(
        self, model: Model, blocks: int, block_size: int, *, swap_bytes: int = 1 << 28
    ) -> None:
        self._model = model
        self._device = model.profile.device
        self.device_type = model.profile.device_type
        self._cache: KVCache = model.new_cache(blocks, block_size)
        self._block_size = block_size
        self._block_bytes = model.cache_bytes(block_size)
        self._swap_room = swap_bytes // self._block_bytes  # blocks
        self._token_seconds = 0.0  # of a step, for one of its tokens, lately
        self._copy_seconds = self._time_a_copy()  # of one block to the host
        one, several = self._time_a_step(1), self._time_a_step(_SEVERAL)
        self.draft_cost = min(1.0, max(0.0, (several - one) / (_SEVERAL - 1) / one))
        self._silent = model.vocabulary.control_ids
        self.revision = f"{model.revision}/{model.plan}"
        self.context, self.vocab_size = model.config.context, model.config.vocab_size
        self.eos_ids = model.config.eos_ids

    def token_bytes(self, token_id: int) -> bytes:
        vocabulary = self._model.vocabulary
        if token_id in self._silent or token_id >= len(vocabulary):  # some heads have more rows
            return b""
        return vocabulary.token_bytes(token_id)

    def run(self, work: Sequence[Work]) -> Draws:
        begun = time.perf_counter()
        try:
            batch = pack(
                [_row(each) for each in work], self._block_size, self._model.profile.device
            )
            logits = self._model.forward(batch, self._cache)
            drawn = self._draw(logits, work)
        except (MemoryError, torch.OutOfMemoryError) as fault:
            raise DeviceOutOfMemory(str(fault)) from fault
        except torch.AcceleratorError as fault:
            raise DeviceLost(str(fault)) from fault
        except RuntimeError as fault:
            if "DefaultCPUAllocator" in str(fault):  # torch has no class of its own for this one
                raise DeviceOutOfMemory(str(fault)) from fault
            raise
        if batch.tokens > 4 * batch.rows:  # mostly prompts: what computing again would be
            spent = (time.perf_counter() - begun) / batch.tokens
            self._token_seconds += (spent - self._token_seconds) / (4 if self._token_seconds else 1)
        logprobs = {
            i: TokenLogprob(id=id, logprob=value, top=top)
            for i, (id, value, top) in enumerate(
                zip(drawn.ids, drawn.logprobs, drawn.top, strict=True)
            )
            if value is not None
        }
        return Draws(drawn.ids, drawn.finite, logprobs)

    def swap_out(self, blocks: Sequence[int], tokens: int) -> object | None:
        if len(blocks) > self._swap_room or not self.swap_pays(len(blocks), tokens):
            return None
        try:
            swapped = self._cache.swap_out(blocks)
        except (MemoryError, RuntimeError):  # no memory on the host: then they are computed again
            return None
        self._swap_room -= len(blocks)
        return swapped

    def swap_pays(self, blocks: int, tokens: int) -> bool:
        """Whether copying out and in again is cheaper than computing; both are measured."""
        return 2 * blocks * self._copy_seconds < tokens * self._token_seconds

    def swap_in(self, swapped: object, blocks: Sequence[int]) -> None:
        assert isinstance(swapped, torch.Tensor)
        self._cache.swap_in(swapped, blocks)
        self.drop(swapped)

    def drop(self, swapped: object) -> None:
        assert isinstance(swapped, torch.Tensor)
        self._swap_room += swapped.shape[2]

    def _draw(self, logits: torch.Tensor, work: Sequence[Work]) -> Drawn:
        params: list[DrawParams] = []
        seen: list[Sequence[int]] = []
        prompts: list[Sequence[int]] = []
        for each in work:
            if not each.draws:
                continue
            sequence = each.sequence
            penalised = _penalises(sequence.job.sampling)
            for i in range(each.draws):
                params.append(_params(sequence, i, self.eos_ids))
                said = sequence.ids[sequence.prompt :] + sequence.drafts[:i] if penalised else ()
                seen.append(said)
                prompts.append(sequence.job.prompt_ids if penalised else ())
        if not params:
            return Drawn([], [], [], [])
        return draw(logits, params, seen, prompts)

    def _time_a_step(self, tokens: int) -> float:
        """Seconds for `tokens` tokens of one sequence, the best of a few: others use the CPU too."""
        batch = pack([Row([0] * tokens, 0, [0], tokens)], self._block_size, self._device)
        params = [DrawParams(temperature=0.0)] * tokens

        def once() -> float:
            begun = time.perf_counter()
            draw(self._model.forward(batch, self._cache), params)
            return time.perf_counter() - begun

        return min(once() for _ in range(4))

    def _time_a_copy(self) -> float:
        self._cache.swap_in(self._cache.swap_out([0]), [0])  # the first one also pays for pages
        begun = time.perf_counter()
        self._cache.swap_out([0])
        return time.perf_counter() - begun


def _row(work: Work) -> Row:
    sequence = work.sequence
    start = sequence.computed
    ids = sequence.ids[start : start + work.count]
    if work.draws > 1:
        ids += sequence.drafts
    return Row(ids, start, sequence.blocks, work.draws)


def _penalises(sampling: Sampling) -> bool:
    return bool(
        sampling.presence_penalty
        or sampling.frequency_penalty
        or sampling.repetition_penalty != 1.0
    )


def _params(sequence: Said, draft: int, eos_ids: frozenset[int]) -> DrawParams:
    """How the token behind `draft` drafts is drawn. Position and choice name its chance."""
    sampling = sequence.job.sampling
    position = sequence.generated + draft
    banned = tuple(eos_ids) if position < sampling.min_tokens else ()
    return DrawParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        logit_bias=sampling.logit_bias,
        banned_ids=banned,
        seed=sampling.seed,
        position=position,
        stream=sequence.choice,
        logprobs=sampling.top_logprobs if sampling.logprobs else -1,
    )
