"""What every field of every record means, beyond its type: `x-ai-semantic-type` of the contracts.

A name means the same in every record; where it does not, `Record.field` says so.
"""

_MEANINGS = {
    "text/plain": "content text pieces token prompt stop",  # what people and models said
    "text/plain; reason": "message why detail by",
    "token-ids": "ids token_ids prompt_ids",
    "token-index": "k",
    "token-count": "cached_tokens completion_tokens total_tokens prompt_tokens max_tokens min_tokens"
    " context bytes_per_token tokens",
    "token-bias": "logit_bias",
    "logprob": "logprob top logprobs top_logprobs",
    "bytes; utf-8": "bytes",
    "byte-count": "memory_floor",
    "sampling-parameter": "temperature top_p top_k min_p presence_penalty frequency_penalty"
    " repetition_penalty n ignore_eos",
    "sampling-seed": "seed",
    "finish-reason": "finish finish_reason",
    "choice-index": "choice index",
    "choices": "choices",
    "messages": "messages",
    "role": "role",
    "outcome": "outcome",
    "error": "error",
    "error-code": "code type",
    "json-path": "param",
    "usage": "usage",
    "request-id": "request_id id",
    "correlation-id": "correlation_id",
    "attempt-number": "attempt attempts",
    "member-id": "member worker orchestrator edge",
    "member-epoch": "epoch orchestrator_epoch nonce",
    "member-state": "state",
    "stream-id": "stream",
    "tenant": "tenant",
    "lane": "lane",
    "service-tier": "service_tier",
    "model-name": "model name",
    "model-revision": "revision",
    "model-plan": "plan",
    "model-figure": "batch precisions format engine file source",
    "device-type": "device_type devices",
    "sha256": "sha256 body_hash",
    "cache-key": "salt affinity prefixes",
    "epoch-ms": "accepted created deadline finished time sampled",
    "stage-times; epoch-ms": "entered first",
    "duration-ms": "ingress queue dispatch prefill first_token decode delivery grace",
    "duration-s": "timeout step_age",
    "timings": "timings",
    "kafka-topic": "topic",
    "kafka-partition": "partition partitions inbox",
    "kafka-offset": "offset slot_from position output requests_ends",
    "credit-count": "count credits",
    "count": "counter slots blocks_total blocks_used blocks_cached requests_lag waiting",
    "rate; per-second": "rate",
    "ratio": "memory_used",
    "attempts": "running",
    "flag": "alone same_answer silent superseded gone paused caught_up normalize",
    "record-tags": "reads version",
    "record-encoding": "encoding",
    "completion-kind": "kind",
    "url": "http",
    "application/json": "metadata echoed sampling",
}
_ELSEWHERE = {
    "Status.slots": "kafka-partition",
    "Status.orchestrator": "application/json",
    "Status.worker": "application/json",
    "Lease.ready": "kafka-offset",
    "Order.ready": "application/json",
    "Request.logprobs": "sampling-parameter",
    "Request.top_logprobs": "sampling-parameter",
    "SamplingParams.logprobs": "sampling-parameter",
    "SamplingParams.top_logprobs": "sampling-parameter",
    "Message.name": "name",
}
_BY_NAME = {name: meaning for meaning, names in _MEANINGS.items() for name in names.split()}


def meaning_of(record: str, field: str) -> str | None:
    """The semantic type of a field; None: nobody has said yet, which a test forbids."""
    return _ELSEWHERE.get(f"{record}.{field}") or _BY_NAME.get(field)
