"""GPT-2's alphabet: the printable character that stands for each byte in a token."""


def _byte_alphabet() -> dict[str, int]:
    """The byte that each character of a byte-level token stands for (GPT-2's table)."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in set(shown)]
    table = {chr(b): b for b in shown}
    return table | {chr(256 + i): b for i, b in enumerate(hidden)}


_ALPHABET = _byte_alphabet()


def piece_bytes(piece: str) -> bytes:
    """The bytes of a token as the vocabulary writes it."""
    if all(char in _ALPHABET for char in piece):
        return bytes(_ALPHABET[char] for char in piece)
    return piece.encode()  # an added token, stored as plain text
