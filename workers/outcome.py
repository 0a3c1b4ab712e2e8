"""How a run ended, as its `output` tells it."""

from pipeline import metrics
from schemas.ledger import Output, Usage
from workers.endings import Ending
from workers.run import Run


def output_of(run: Run, ending: Ending, finished: int) -> Output:
    """All that its result needs. An earlier attempt's first token stays the first."""
    order, ready, speaker = run.order, run.order.ready, run.speaker
    said = sum(len(voice.ids) for voice in speaker.voices)
    given = len(ready.prompt_ids)
    return Output(
        request_id=order.request_id,
        attempt=order.attempt,
        outcome=ending.outcome,
        error=ending.error,
        kind=ready.kind,
        model=ready.model,
        revision=ready.revision,
        choices=[voice.said(i) for i, voice in enumerate(speaker.voices)],
        usage=Usage(
            prompt_tokens=given,
            completion_tokens=said,
            total_tokens=given + said,
            cached_tokens=speaker.cached_tokens,
        ),
        same_answer=order.same_answer,
        tenant=ready.tenant,
        lane=ready.lane,
        encoding=ready.encoding,
        correlation_id=ready.correlation_id,
        service_tier=ready.service_tier,
        metadata=ready.metadata,
        echoed=ready.echoed,
        worker=order.worker,
        epoch=order.epoch,
        created=ready.created,
        accepted=ready.accepted,
        finished=finished,
        body_hash=ready.body_hash,
        entered={**ready.entered, **order.entered, **speaker.first, **run.first},
    )


def tokens_of(run: Run) -> dict[str, str | int]:
    """Model and tokens, by the names of OpenTelemetry's GenAI conventions."""
    return {
        "gen_ai.operation.name": run.order.ready.kind,
        "gen_ai.request.model": run.order.ready.model,
        "gen_ai.usage.input_tokens": len(run.order.ready.prompt_ids),
        "gen_ai.usage.output_tokens": sum(len(voice.ids) for voice in run.speaker.voices),
    }


def measure(output: Output) -> None:
    """First token and pace of a completed run, into the metrics."""
    first = output.entered.get("first_token")
    if first is None or output.outcome != "completed":
        return
    labels = ("chat" if output.kind == "chat" else "text_completion", output.model or "")
    labels = (labels[0], metrics.capped("model", labels[1]))
    metrics.time_to_first_token.labels(*labels).observe((first - output.accepted) / 1000)
    longest = max((len(said.ids) for said in output.choices), default=0)  # they go side by side
    after = longest - 1
    if after > 0:
        pace = (output.finished - first) / 1000 / after
        metrics.time_per_output_token.labels(*labels).observe(pace)
