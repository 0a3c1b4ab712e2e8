"""From logits to tokens: a row's draw depends on its own logits, seed and position, on nothing else.

Order: raw logprobs -> penalties, bias, bans -> temperature -> top-k -> top-p, min-p -> draw. The
filters keep values above a threshold, so ties do not depend on how something was sorted; the draw
is one uniform number through the inverse CDF in the order of token ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np
import numpy.typing as npt
import torch

from kernels.philox import uniform

TOP_LOGPROBS = 20  # the interface's most; always this many are ranked, so k never changes a tie
_GREEDY_BELOW = 1e-5  # a temperature under which division would overflow
_PART = 256  # tokens of the vocabulary that are summed up together


@dataclass(slots=True, frozen=True, kw_only=True)
class DrawParams:
    """How one row's token is drawn. Defaults draw from the model's own distribution."""

    temperature: float = 1.0  # 0 = greedy
    top_p: float = 1.0
    top_k: int = 0  # 0 = off
    min_p: float = 0.0
    presence_penalty: float = 0.0  # over generated tokens, as frequency_penalty
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0  # over prompt and generated tokens
    logit_bias: tuple[tuple[int, float], ...] = ()
    banned_ids: tuple[int, ...] = ()
    seed: int = 0  # 64 bits
    position: int = 0  # index of the drawn token in its choice
    stream: int = 0  # the choice
    logprobs: int = -1  # -1 off; else how many alternatives, at most TOP_LOGPROBS

    @property
    def greedy(self) -> bool:
        return self.temperature < _GREEDY_BELOW


@dataclass(slots=True)
class Drawn:
    """What was drawn, by row. Where `finite` is False the row's logits were no numbers."""

    ids: list[int]
    finite: list[bool]
    logprobs: list[float | None]  # raw log-softmax of the drawn token, where asked for
    top: list[tuple[tuple[int, float], ...]]  # (id, logprob), best first


def draw(
    logits: torch.Tensor,
    params: Sequence[DrawParams],
    seen: Sequence[Sequence[int]] | None = None,
    prompts: Sequence[Sequence[int]] | None = None,
) -> Drawn:
    """One token a row. logits [rows, vocab] fp32; `seen` and `prompts` are ids by row.

    `seen` is what the choice generated so far; both are needed only where penalties are on.
    """
    rows = len(params)
    raw = logits
    for r, p in enumerate(params):
        if _shapes(p):
            if raw is logits:
                logits = logits.clone()
            _shape(logits[r], p, seen[r] if seen else (), prompts[r] if prompts else ())
    ids = logits.argmax(dim=-1)
    finite = torch.isfinite(logits.gather(1, ids[:, None])[:, 0])
    drawing = [r for r, p in enumerate(params) if not p.greedy]
    if drawing:
        picked = logits if len(drawing) == rows else logits[drawing]
        drawn, sound = _sample(picked, [params[r] for r in drawing])
        ids[drawing], finite[drawing] = drawn, finite[drawing] & sound
    logprobs: list[float | None] = [None] * rows
    top: list[tuple[tuple[int, float], ...]] = [()] * rows
    asked = [r for r, p in enumerate(params) if p.logprobs >= 0]
    if asked:
        _rank(raw, ids, asked, params, logprobs, top)
    return Drawn(ids.tolist(), finite.tolist(), logprobs, top)


def _shapes(p: DrawParams) -> bool:
    return bool(
        p.logit_bias
        or p.banned_ids
        or p.presence_penalty
        or p.frequency_penalty
        or p.repetition_penalty != 1.0
    )


def _shape(row: torch.Tensor, p: DrawParams, seen: Sequence[int], prompt: Sequence[int]) -> None:
    """Penalties (OpenAI's; repetition after Keskar et al. 2019), bias and bans, in place."""
    if p.repetition_penalty != 1.0 and (seen or prompt):
        ids = torch.tensor(sorted({*seen, *prompt}), device=row.device)
        old = row[ids]
        row[ids] = torch.where(old > 0, old / p.repetition_penalty, old * p.repetition_penalty)
    if seen and (p.presence_penalty or p.frequency_penalty):
        unique, counts = np.unique(np.asarray(seen), return_counts=True)
        ids = torch.from_numpy(unique).to(row.device)
        times = torch.from_numpy(counts.astype(np.float32)).to(row.device)
        row[ids] -= p.presence_penalty + p.frequency_penalty * times
    for token_id, bias in p.logit_bias:
        row[token_id] += bias
    if p.banned_ids:
        row[list(p.banned_ids)] = -torch.inf


def _sample(
    logits: torch.Tensor, params: Sequence[DrawParams]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Drawn ids [rows] and whether each row was finite."""
    device = logits.device
    temperature = torch.tensor([p.temperature for p in params], device=device)
    scaled = logits / temperature[:, None]
    if any(p.top_k for p in params):
        scaled = _keep_top_k(scaled, params)
    probs = torch.softmax(scaled, dim=-1)
    least = torch.tensor([p.min_p for p in params], device=device)
    if bool((least > 0).any()):
        probs = torch.where(probs >= least[:, None] * probs.amax(-1, keepdim=True), probs, 0.0)
    if any(p.top_p < 1.0 for p in params):
        probs = _keep_top_p(probs, params)
    chance = uniform(
        [p.seed for p in params], [p.position for p in params], [p.stream for p in params]
    )
    return _pick(probs, torch.from_numpy(chance).to(device))


def _pick(probs: torch.Tensor, chance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Inverse CDF in the order of ids: first which part of the vocabulary, then which token of it.

    One running sum over a whole row cost more than all the rest of a draw (49,152 tokens, 64 rows:
    58 ms of CPU time against 4 ms).
    """
    missing = -probs.shape[-1] % _PART
    parts = torch.nn.functional.pad(probs, (0, missing)) if missing else probs
    parts = parts.reshape(probs.shape[0], -1, _PART)
    ends = parts.sum(-1).cumsum(-1, dtype=torch.float64)  # [rows, parts]
    total = ends[:, -1]
    target = (chance * total)[:, None]
    part = torch.searchsorted(ends, target, right=True).clamp(max=ends.shape[-1] - 1)
    before = torch.nn.functional.pad(ends, (1, 0)).gather(1, part)
    inside = parts.gather(1, part[..., None].expand(-1, 1, _PART))[:, 0]  # [rows, _PART]
    sums = inside.cumsum(-1, dtype=torch.float64)
    place = torch.searchsorted(sums, target - before, right=True)
    # rounding can put the target at the very end: the last token of the part that has any chance
    last = torch.searchsorted(sums, sums[:, -1:].contiguous())
    sound = torch.isfinite(total) & (total > 0)
    ids = part * _PART + torch.minimum(place, last)
    return torch.where(sound, ids[:, 0], 0), sound


def _keep_top_k(scaled: torch.Tensor, params: Sequence[DrawParams]) -> torch.Tensor:
    vocab = scaled.shape[-1]
    k = [min(p.top_k, vocab) if p.top_k > 0 else vocab for p in params]
    most = max((n for n in k if n < vocab), default=0)
    if not most:
        return scaled
    best = scaled.topk(most, dim=-1).values  # [rows, most], descending
    place = torch.tensor([min(n, most) - 1 for n in k], device=scaled.device)
    limit = best.gather(1, place[:, None])
    off = torch.tensor([n == vocab for n in k], device=scaled.device)
    limit = torch.where(off[:, None], -torch.inf, limit)
    return torch.where(scaled >= limit, scaled, -torch.inf)


def _keep_top_p(probs: torch.Tensor, params: Sequence[DrawParams]) -> torch.Tensor:
    """The smallest set of the most probable tokens whose mass reaches top_p, with its ties."""
    share = torch.tensor([p.top_p for p in params], dtype=torch.float64, device=probs.device)
    wanted = share * probs.sum(-1, dtype=torch.float64)
    if probs.device.type == "cpu":
        rows = zip(probs.numpy(), wanted.tolist(), params, strict=True)
        least = [_least_of_nucleus(row, mass) if p.top_p < 1.0 else 0.0 for row, mass, p in rows]
        limit = torch.tensor(least)
    else:
        ranked = probs.sort(descending=True).values
        count = (ranked.cumsum(-1, dtype=torch.float64) < wanted[:, None]).sum(-1, keepdim=True)
        limit = ranked.gather(1, count.clamp(max=ranked.shape[-1] - 1))[:, 0]
        limit = torch.where(share < 1.0, limit, 0.0)
    return torch.where(probs >= limit[:, None], probs, 0.0)


def _least_of_nucleus(row: npt.NDArray[np.float32], wanted: float) -> float:
    """The least probability in the nucleus of mass `wanted`.

    Only tokens above a cut are sorted, and the cut falls until their mass suffices: sorting a whole
    row of 49,152 takes fifty times as long.
    """
    cut = float(row.max()) / 64  # above it lies the nucleus of most rows
    while not isnan(cut):  # a row of NaN is not drawn from
        best = np.sort(row[row >= cut])[::-1]
        mass = best.cumsum(dtype=np.float64)
        if not cut or mass[-1] >= wanted:
            return float(best[min(int(np.searchsorted(mass, wanted)), len(best) - 1)])
        cut = cut / 64 if cut > 1e-9 else 0.0  # below 1e-9 a whole vocabulary weighs nothing
    return 0.0


def _rank(
    raw: torch.Tensor,
    ids: torch.Tensor,
    asked: list[int],
    params: Sequence[DrawParams],
    logprobs: list[float | None],
    top: list[tuple[tuple[int, float], ...]],
) -> None:
    """Raw log-softmax of the drawn tokens and of the best alternatives, into the lists."""
    scores = torch.log_softmax(raw[asked], dim=-1)
    chosen = scores.gather(1, ids[asked][:, None])[:, 0].tolist()
    best = scores.topk(min(TOP_LOGPROBS, scores.shape[-1]), dim=-1)
    values, places = best.values.tolist(), best.indices.tolist()
    for i, r in enumerate(asked):
        count = min(params[r].logprobs, TOP_LOGPROBS)
        logprobs[r] = chosen[i]
        top[r] = tuple(zip(places[i][:count], values[i][:count], strict=True))
