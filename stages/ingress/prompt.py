"""Steps that turn what was said into token ids, and count them."""

from collections.abc import Mapping

from schemas.errors import Refusal
from schemas.models import Model
from schemas.request import Request

from .draft import Draft, Step
from .normalise import normalise, normalise_messages
from .vocabularies import Language, Languages

TEXT_DEFAULT = 16  # max_tokens of a text completion that names none, as OpenAI's


def find_model(models: Mapping[str, Model], languages: Languages) -> Step:
    def step(draft: Draft) -> None:
        model = models.get(draft.request.model)
        if model is None:
            known = ", ".join(sorted(models)[:8]) or "none"
            raise Refusal(
                "model_not_found",
                f"model {draft.request.model} does not exist; registered: {known}",
                param="model",
            )
        draft.model, draft.language = model, languages.of(model)

    return step


def tokenise(draft: Draft) -> None:
    """Messages through the chat template, a prompt as it is; token ids are taken at their word."""
    request, language = draft.request, draft.language
    assert language is not None, "the first step finds the model"
    if request.messages is not None:
        draft.prompt_ids = _of_messages(request, language)
    elif isinstance(request.prompt, str):
        text = normalise(request.prompt) if request.normalize else request.prompt
        draft.prompt_ids = [*language.prompt_start, *language.encoder.encode(text)]
    else:
        draft.prompt_ids = _checked(list(request.prompt or []), len(language.encoder))
    if not draft.prompt_ids:
        raise Refusal("invalid_value", "the prompt is empty: it has no token", param="prompt")
    _check_biases(request, len(language.encoder))


def _of_messages(request: Request, language: Language) -> list[int]:
    if language.template is None:
        raise Refusal(
            "unsupported_parameter",
            f"model {request.model} has no chat template; send prompt to /v1/completions",
            param="messages",
        )
    messages = list(request.messages or [])
    if request.normalize:
        messages = normalise_messages(messages)
    return language.encoder.encode_pieces(language.template.render(messages))


def _checked(given: list[int], size: int) -> list[int]:
    if max(given, default=0) >= size:
        at = next(i for i, id in enumerate(given) if id >= size)
        raise Refusal(
            "invalid_value",
            f"prompt[{at}] is {given[at]}; the model's token ids end at {size - 1}",
            param=f"prompt[{at}]",
        )
    return given


def _check_biases(request: Request, size: int) -> None:
    for id in request.logit_bias:
        if int(id) >= size:
            raise Refusal(
                "invalid_value",
                f"logit_bias names token {id}; the model's token ids end at {size - 1}",
                param=f"logit_bias.{id}",
            )


def budget(output_limit: int) -> Step:
    """Context and output size. Nothing is ever cut: what does not fit is refused with both numbers."""

    def step(draft: Draft) -> None:
        request, model = draft.request, draft.model
        assert model is not None, "the first step finds the model"
        given = len(draft.prompt_ids)
        rest = model.context - given
        fits = output_limit // (model.bytes_per_token * request.n)  # tokens in one output record
        if rest < max(1, request.max_tokens or 1):
            raise _too_long(model, given, request)
        if request.max_tokens is not None and request.max_tokens > fits:
            raise Refusal(
                "output_too_large",
                f"max_tokens {request.max_tokens} could make more than {output_limit} bytes"
                f"{f' in {request.n} choices' if request.n > 1 else ''}; at most {fits} tokens fit",
                param="max_tokens",
            )
        wanted = rest if request.kind == "chat" else TEXT_DEFAULT
        draft.max_tokens = request.max_tokens or min(wanted, rest, fits)
        if request.min_tokens > draft.max_tokens:
            raise Refusal(
                "invalid_value",
                f"min_tokens is {request.min_tokens}; at most {draft.max_tokens} tokens can follow",
                param="min_tokens",
            )

    return step


def _too_long(model: Model, given: int, request: Request) -> Refusal:
    field = "messages" if request.kind == "chat" else "prompt"
    asked = request.max_tokens
    message = (
        f"model {model.name} has a context of {model.context} tokens; the {field} have {given}"
    )
    if asked is not None:
        message += f" and max_tokens asks for {asked}, {given + asked} together"
        if given < model.context:
            message += f"; ask for at most {model.context - given}"
    return Refusal("context_length_exceeded", message, param=field)
