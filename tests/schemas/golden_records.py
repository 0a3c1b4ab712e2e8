"""Golden bytes of every record: what was written once can be read for ever.

`python -m tests.schemas.golden_records` adds the bytes of today's records where they have changed; the
old ones stay, since they are on somebody's topics.
"""

import types
import typing
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from schemas.codec import JSON, MSGPACK, decode, encode
from schemas.contracts import Record, file_of, records

FOLDER = Path(__file__).parent / "golden"
SUFFIXES = {MSGPACK: "msgpack", JSON: "json"}


def files(record: Record, encoding: str) -> list[Path]:
    """Oldest first."""
    stem = file_of(record).removesuffix(".json")
    return sorted(FOLDER.glob(f"{stem}.*.{SUFFIXES[encoding]}"))


def example(record: Record) -> msgspec.Struct:
    """A record with something in every field, made from its types alone."""
    return typing.cast(msgspec.Struct, _value(record, record.__name__))


def _value(kind: Any, name: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _value(next(each for each in arguments if each is not type(None)), name)
    if origin is typing.Annotated:
        return _value(arguments[0], name)
    if origin is list:
        return [_value(arguments[0], name)]
    if origin is tuple:
        return tuple(_value(each, name) for each in arguments)
    if origin is dict:
        return {name: _value(arguments[1], name)}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind, include_extras=True)
        fields = msgspec.structs.fields(kind)
        return kind(**{f.encode_name: _value(hints[f.name], f.name) for f in fields})
    plain = {str: name, int: 1 + len(name) % 7, float: 0.5, bool: True, typing.Any: {"any": name}}
    return plain[kind]


def write() -> None:
    FOLDER.mkdir(exist_ok=True)
    for record in records():
        for encoding, suffix in SUFFIXES.items():
            known, value = files(record, encoding), encode(example(record), encoding)
            if not known or known[-1].read_bytes() != value:
                stem = file_of(record).removesuffix(".json")
                (FOLDER / f"{stem}.{len(known)}.{suffix}").write_bytes(value)


def read(record: Record, path: Path) -> Any:
    return decode(path.read_bytes(), record)


if __name__ == "__main__":
    write()
