"""The official `openai` client, unmodified, gets what it expects."""

import openai
import pytest
from openai import OpenAI

from tests.flow.installation import MODEL

QUESTION = [{"role": "user", "content": "What is the capital of Japan?"}]


def test_a_question_gets_its_answer(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, temperature=0, max_tokens=32
    )
    choice = answer.choices[0]
    assert choice.message.role == "assistant"
    assert "Tokyo" in (choice.message.content or "")
    assert choice.finish_reason == "stop"
    assert answer.id.startswith("req_") and answer.model == MODEL
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_stream_says_the_same_as_the_whole_answer(client: OpenAI) -> None:
    options = {"model": MODEL, "messages": QUESTION, "temperature": 0, "max_tokens": 32}
    whole = client.chat.completions.create(**options)
    stream = client.chat.completions.create(
        **options, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage


def test_several_choices_come_whole_and_streamed(client: OpenAI) -> None:
    options = {"model": MODEL, "messages": QUESTION, "seed": 5, "max_tokens": 12, "n": 2}
    whole = client.chat.completions.create(**options)
    assert [choice.index for choice in whole.choices] == [0, 1]
    texts = [choice.message.content for choice in whole.choices]
    assert texts[0] != texts[1]
    usage = whole.usage
    assert usage is not None and 12 < usage.completion_tokens <= 24
    alone = client.chat.completions.create(**options | {"n": 1})
    assert alone.choices[0].message.content == texts[0]
    assert alone.usage is not None and alone.usage.prompt_tokens == usage.prompt_tokens
    chunks = list(
        client.chat.completions.create(
            **options, stream=True, stream_options={"include_usage": True}
        )
    )
    said, ends = ["", ""], ["", ""]
    for one in (chunk.choices[0] for chunk in chunks if chunk.choices):
        said[one.index] += one.delta.content or ""
        ends[one.index] += one.finish_reason or ""
    assert said == texts
    assert ends == [choice.finish_reason for choice in whole.choices]
    roles = [c.choices[0].index for c in chunks if c.choices and c.choices[0].delta.role]
    assert sorted(roles) == [0, 1]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == usage.completion_tokens


def test_text_completions_work(client: OpenAI) -> None:
    answer = client.completions.create(
        model=MODEL, prompt="The capital of Japan is", temperature=0, max_tokens=8
    )
    assert "Tokyo" in answer.choices[0].text
    streamed = client.completions.create(
        model=MODEL, prompt="The capital of Japan is", temperature=0, max_tokens=8, stream=True
    )
    assert "".join(c.choices[0].text for c in streamed if c.choices) == answer.choices[0].text


def test_a_seed_repeats_its_answer_and_another_changes_it(client: OpenAI) -> None:
    def ask(seed: int) -> str:
        answer = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Tell me a story"}],
            seed=seed, max_tokens=24,
        )  # fmt: skip
        return answer.choices[0].message.content or ""

    assert ask(1) == ask(1)
    assert ask(1) != ask(2)


def test_stop_strings_end_the_text_before_them(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, temperature=0, max_tokens=32, stop=[" is"]
    )
    assert answer.choices[0].finish_reason == "stop"
    assert " is" not in (answer.choices[0].message.content or "")


def test_logprobs_come_when_asked_for(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, temperature=0, max_tokens=4, logprobs=True, top_logprobs=3
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    assert len(logprobs.content) == 4
    for token in logprobs.content:
        assert len(token.top_logprobs) == 3
        assert token.logprob <= 0
        assert token.top_logprobs[0].logprob == pytest.approx(token.logprob)  # greedy: the best


def test_models_are_listed(client: OpenAI) -> None:
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).model_dump()["max_model_len"] == 8192


def test_each_error_class_of_the_client_is_raised_for_its_error(client: OpenAI) -> None:
    ask = client.chat.completions.create
    with pytest.raises(openai.NotFoundError) as unknown:
        ask(model="gpt-9", messages=QUESTION)
    assert unknown.value.code == "model_not_found" and MODEL in unknown.value.message
    with pytest.raises(openai.BadRequestError) as range_error:
        ask(model=MODEL, messages=QUESTION, temperature=3)
    assert range_error.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as long:
        ask(model=MODEL, messages=QUESTION, max_tokens=9000)
    assert long.value.code == "context_length_exceeded"
    assert "9000" in long.value.message and "8192" in long.value.message
    with pytest.raises(openai.BadRequestError) as unsupported:
        ask(model=MODEL, messages=QUESTION, extra_body={"temprature": 1})
    assert unsupported.value.code == "unsupported_parameter"
    assert "temperature" in unsupported.value.message
