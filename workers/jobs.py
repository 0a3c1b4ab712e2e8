"""Orders into jobs: what an engine may know of a request."""

from schemas.request import LANES
from schemas.work import Order, SamplingParams
from workers.job import Job, Prefix, Sampling


def job_of(order: Order, prefix: tuple[Prefix, ...]) -> Job:
    """The order as an engine sees it, going on behind `prefix`."""
    ready = order.ready
    return Job(
        request_id=order.request_id,
        attempt=order.attempt,
        prompt_ids=ready.prompt_ids,
        max_tokens=ready.max_tokens,
        n=ready.n,
        sampling=_sampling(ready.sampling),
        prefix=prefix,
        salt=ready.salt,
        lane=LANES.index(ready.lane) if ready.lane in LANES else 1,
        deadline_ms=ready.deadline,
        alone=order.alone,
    )


def _sampling(params: SamplingParams) -> Sampling:
    return Sampling(
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
        min_p=params.min_p,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        logit_bias=tuple(params.logit_bias),
        logprobs=params.logprobs,
        top_logprobs=params.top_logprobs,
        stop=tuple(params.stop),
        min_tokens=params.min_tokens,
        ignore_eos=params.ignore_eos,
        seed=params.seed,
    )
