"""The vocabulary and the chat template of each registered model, loaded once per revision."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import jinja2

from kernels.errors import KernelError
from kernels.vocabulary import Vocabulary, load_vocabulary
from pipeline import logs
from schemas.errors import Refusal
from schemas.models import Model

from .template import ChatTemplate
from .words import Words

KEPT = 8  # vocabularies in memory, some 30 MB each


class Encoder(Protocol):
    """Text to ids; see kernels.vocabulary."""

    def __len__(self) -> int: ...
    def encode(self, text: str) -> list[int]: ...
    def encode_pieces(self, pieces: Iterable[tuple[str, bool]]) -> list[int]: ...


class Language:
    """How one model reads: its vocabulary, how a raw prompt begins, its chat template."""

    def __init__(
        self, encoder: Encoder, template: ChatTemplate | None, prompt_start: tuple[int, ...] = ()
    ) -> None:
        self.encoder = encoder
        self.template = template
        self.prompt_start = prompt_start


class Languages:
    """One `Language` per model revision, the least recently used one forgotten."""

    def __init__(self, home: Path, now_ms: Callable[[], int]) -> None:
        self._home = home
        self._now_ms = now_ms
        self._known: dict[str, Language] = {}

    def of(self, model: Model) -> Language:
        """Reads the model's file the first time. Raises Refusal when it cannot be read here."""
        key = f"{model.name}@{model.revision}"
        language = self._known.pop(key, None)
        if language is None:
            language = self._load(model)
        self._known[key] = language
        if len(self._known) > KEPT:
            del self._known[next(iter(self._known))]
        return language

    def _load(self, model: Model) -> Language:
        try:
            if model.format == "null":
                words = Words()
                template = self._template(words.chat_template, words.control, words.bos, words.eos)
                return Language(words, template)
            path = self._home / "models" / model.file  # an absolute file stays what it is
            return self._of_vocabulary(load_vocabulary(path))
        except (KernelError, OSError, jinja2.TemplateError) as error:
            logs.error("vocabulary", model=model.name, error=error)
            raise Refusal(
                "model_not_found",
                f"model {model.name} is registered, but ingress cannot read its vocabulary: {error}",
                param="model",
            ) from error

    def _of_vocabulary(self, vocabulary: Vocabulary) -> Language:
        names = {id: piece for piece, id in vocabulary.control.items()}
        bos = names.get(vocabulary.bos_id, "") if vocabulary.bos_id is not None else ""
        template = self._template(
            vocabulary.chat_template, names.values(), bos, names.get(vocabulary.eos_id, "")
        )
        start: tuple[int, ...] = ()
        if vocabulary.add_bos and vocabulary.bos_id is not None:
            start = (vocabulary.bos_id,)
        return Language(vocabulary, template, start)

    def _template(
        self, source: str | None, control: Iterable[str], bos: str, eos: str
    ) -> ChatTemplate | None:
        if source is None:
            return None
        return ChatTemplate(source, control, bos=bos, eos=eos, now_ms=self._now_ms)
