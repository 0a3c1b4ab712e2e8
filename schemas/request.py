"""What a client may ask: the body of a chat or text completion, as a record of `hr.requests`.

`schemas/intake.py` turns bytes from outside into a Request or a Refusal that names the field.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

LANES = ("gold", "silver", "bronze")
TIER_LANES = {"priority": "gold", "auto": "silver", "default": "silver", "flex": "bronze"}

Temperature = Annotated[float, Meta(ge=0, le=2)]
TopP = Annotated[float, Meta(gt=0, le=1)]
TopK = Annotated[int, Meta(ge=-1)]
Probability = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Positive = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]
Bias = Annotated[float, Meta(ge=-100, le=100)]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One turn; content parts are already joined, `developer` is already `system`."""

    role: str  # system | user | assistant
    content: str
    name: str | None = None


class Request(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="request/1"):
    """A valid request: exactly one of `messages` and `prompt`; ranges and defaults of the interface."""

    id: str | None = None
    model: str
    messages: list[Message] | None = None
    prompt: str | list[int] | None = None
    max_tokens: Positive | None = None
    temperature: Temperature = 1.0
    top_p: TopP = 1.0
    top_k: TopK = 0
    min_p: Probability = 0.0
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    repetition_penalty: Annotated[float, Meta(gt=0)] = 1.0
    stop: Annotated[list[str], Meta(max_length=16)] = []
    seed: int | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] = 0
    logit_bias: dict[str, Bias] = {}
    n: Annotated[int, Meta(ge=1, le=8)] = 1
    min_tokens: Count = 0
    ignore_eos: bool = False
    normalize: bool = True
    service_tier: str = "auto"
    timeout: Annotated[float, Meta(gt=0)] | None = None  # seconds from acceptance
    metadata: Any = None
    echoed: dict[str, Any] = {}  # accepted without promise: user, store, safety_identifier …

    @property
    def kind(self) -> str:
        """`chat` or `text`."""
        return "chat" if self.messages is not None else "text"
