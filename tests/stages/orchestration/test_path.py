"""The path of a request: ready → lease → order → tokens → output → result."""

from tests.stages.stand import Stand, on_stand


def test_a_ready_request_is_answered() -> None:
    async def story(stand: Stand) -> None:
        for role in ("orchestration", "delivery", "worker"):
            stand.start(role)
        asked = [await stand.ask(tokens) for tokens in (1, 8, 40)]
        await stand.ended()
        stand.check()
        for request_id in asked:
            result = stand.results()[request_id][0]
            assert result.outcome == "completed"
            assert result.attempts == 1
            assert result.same_answer
            assert len(result.choices[0].token_ids) == stand.asked[request_id].max_tokens

    on_stand(story)
