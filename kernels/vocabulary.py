"""A model's vocabulary: text to token ids and back, from the file that carries the weights.

Text that a user wrote can never become a control token: only the chat template's own pieces may.
Imports no torch and reads no tensor, so that the ingress stage can hold it cheaply.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from kernels.bytelevel import piece_bytes
from kernels.errors import VocabularyError
from kernels.gguf import GGUFFile
from kernels.pretokenizers import PRE_TOKENIZERS

_CONTROL, _USER_DEFINED = 3, 4  # GGUF's token types; the others are ordinary


class Vocabulary:
    """Token ids of one model.

    `eos_ids` end a turn; `add_bos` says whether a raw prompt begins with `bos_id`;
    `chat_template` is the file's Jinja source, None where it has none.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        control: dict[str, int],
        bos_id: int | None,
        eos_ids: frozenset[int],
        add_bos: bool,
        chat_template: str | None,
    ) -> None:
        tokenizer.encode_special_tokens = True  # control tokens in text are text
        self._tokenizer = tokenizer
        self.control = control  # piece → id
        self._control_pattern = _alternation(control)
        self._size = tokenizer.get_vocab_size(with_added_tokens=True)
        self._bytes: dict[int, bytes] = {}
        self.control_ids = frozenset(control.values())
        self.bos_id = bos_id
        self.eos_ids = eos_ids
        self.add_bos = add_bos
        self.chat_template = chat_template

    def __len__(self) -> int:
        return self._size

    @property
    def eos_id(self) -> int:
        return min(self.eos_ids)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; what looks like a control token stays text. No BOS is added."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def encode_pieces(self, pieces: Iterable[tuple[str, bool]]) -> list[int]:
        """Ids of (text, is_template) pieces in a row.

        Control tokens are known in template pieces only. Between them template and user text are
        joined before they are encoded, so the ids are those of the whole text, piece borders or not.
        """
        ids: list[int] = []
        plain: list[str] = []

        def flush() -> None:
            if plain:
                ids.extend(self.encode("".join(plain)))
                plain.clear()

        for text, is_template in pieces:
            if not is_template or self._control_pattern is None:
                plain.append(text)
                continue
            at = 0
            for match in self._control_pattern.finditer(text):
                plain.append(text[at : match.start()])
                flush()
                ids.append(self.control[match.group()])
                at = match.end()
            plain.append(text[at:])
        flush()
        return ids

    def decode(self, ids: Sequence[int], *, skip_control: bool = True) -> str:
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=skip_control)
        return text

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; not always whole characters.

        Raises IndexError for an id outside the vocabulary.
        """
        known = self._bytes.get(token_id)
        if known is None:
            piece = self._tokenizer.id_to_token(token_id) if token_id >= 0 else None
            if piece is None:
                raise IndexError(f"token id {token_id} is outside the vocabulary of {self._size}")
            known = self._bytes[token_id] = piece_bytes(piece)
        return known

    def token_id(self, piece: str) -> int | None:
        """The id of a control token, such as `<|im_start|>`; None where there is none."""
        return self.control.get(piece)

    @property
    def tokenizer(self) -> Tokenizer:
        """For `DecodeStream`; encode with `encode`."""
        return self._tokenizer


def load_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary of a GGUF file, or of a folder with `tokenizer.json`.

    Raises VocabularyError or ModelFileError, naming the file and what is missing.
    """
    if path.is_dir() or path.suffix == ".safetensors":
        return _from_folder(path if path.is_dir() else path.parent)
    return vocabulary_of(GGUFFile(path))


def vocabulary_of(file: GGUFFile) -> Vocabulary:
    """The vocabulary of a GGUF file that is already open."""
    meta, path = file.metadata, file.path
    kind = meta.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise VocabularyError(path, f"tokenizer.ggml.model is {kind!r}; known is 'gpt2' (BPE)")
    tokens = _strings(path, meta, "tokenizer.ggml.tokens")
    merges = [_merge(path, rule) for rule in _strings(path, meta, "tokenizer.ggml.merges")]
    types = meta.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    if len(types) != len(tokens):
        raise VocabularyError(path, f"{len(tokens)} tokens but {len(types)} token types")
    pre = meta.get("tokenizer.ggml.pre")
    if pre not in PRE_TOKENIZERS:
        raise VocabularyError(
            path, f"tokenizer.ggml.pre is {pre!r}; known are {', '.join(PRE_TOKENIZERS)}"
        )
    cut, ignore_merges = PRE_TOKENIZERS[pre]
    ids = {token: i for i, token in enumerate(tokens)}
    for left, right in merges:
        if not {left, right, left + right} <= ids.keys():
            raise VocabularyError(path, f"the merge {left!r} + {right!r} is no token")
    tokenizer = Tokenizer(models.BPE(ids, merges, ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = cut()
    tokenizer.decoder = decoders.ByteLevel()
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    control = {
        t: i for i, (t, kind) in enumerate(zip(tokens, types, strict=True)) if kind == _CONTROL
    }
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
    tokenizer.add_tokens(
        [
            AddedToken(t, special=False, normalized=False)
            for t, kind in zip(tokens, types, strict=True)
            if kind == _USER_DEFINED
        ]
    )
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    ends = [_token_id(path, meta, f"tokenizer.ggml.{key}", len(tokens)) for key in keys]
    eos_ids = frozenset(i for i in ends if i is not None)
    if not eos_ids:
        raise VocabularyError(path, "tokenizer.ggml.eos_token_id is missing")
    bos_id = _token_id(path, meta, "tokenizer.ggml.bos_token_id", len(tokens))
    template = meta.get("tokenizer.chat_template")
    return Vocabulary(
        tokenizer,
        control=control,
        bos_id=bos_id,
        eos_ids=eos_ids,
        add_bos=bool(meta.get("tokenizer.ggml.add_bos_token", False)) and bos_id is not None,
        chat_template=template if isinstance(template, str) else None,
    )


def _from_folder(folder: Path) -> Vocabulary:
    """`tokenizer.json` with `tokenizer_config.json`, as they lie beside safetensors."""
    path = folder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_str(path.read_text("utf-8"))
        side = folder / "tokenizer_config.json"
        settings = json.loads(side.read_text("utf-8")) if side.exists() else {}
    except (OSError, ValueError) as error:
        raise VocabularyError(path, f"cannot be read: {error}") from error
    except Exception as error:  # tokenizers raises nothing narrower
        raise VocabularyError(path, f"is no tokenizer: {error}") from error
    added = tokenizer.get_added_tokens_decoder()
    control = {token.content: i for i, token in added.items() if token.special}

    def id_of(key: str) -> int | None:
        value = settings.get(key)
        piece = value.get("content") if isinstance(value, dict) else value
        return tokenizer.token_to_id(piece) if isinstance(piece, str) else None

    eos_id = id_of("eos_token")
    if eos_id is None:
        raise VocabularyError(folder / "tokenizer_config.json", "names no known eos_token")
    return Vocabulary(
        tokenizer,
        control=control,
        bos_id=id_of("bos_token"),
        eos_ids=frozenset({eos_id}),
        add_bos=bool(settings.get("add_bos_token", False)),
        chat_template=settings.get("chat_template"),
    )


def _strings(path: Path, meta: dict[str, Any], key: str) -> list[str]:
    value = meta.get(key)
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise VocabularyError(path, f"{key} is missing or no list of strings")
    return value


def _merge(path: Path, rule: str) -> tuple[str, str]:
    left, space, right = rule.partition(" ")
    if not (left and space and right) or " " in right:
        raise VocabularyError(path, f"the merge {rule!r} is not two tokens with a space between")
    return left, right


def _token_id(path: Path, meta: dict[str, Any], key: str, size: int) -> int | None:
    value = meta.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or not 0 <= value < size:
        raise VocabularyError(path, f"{key} is {value!r}, outside the vocabulary of {size}")
    return value


def _alternation(control: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(control, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
