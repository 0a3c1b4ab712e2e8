"""Ids: when they were born, and where their records are, as Kafka's own clients compute it."""

import random
import uuid

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.ids import InvalidId, birth, derive, is_id, mint, mint_into, murmur2, partition_of

BORN = 1_764_547_200_000


def test_an_id_says_when_it_was_born() -> None:
    minted = mint(BORN, random.Random(1))
    assert birth(minted) == BORN
    assert uuid.UUID(minted.removeprefix("req_")).version == 7
    assert is_id(minted)


def test_a_derived_id_depends_on_time_and_place_alone() -> None:
    one = derive(BORN, "hr.requests", 3, 99)
    assert one == derive(BORN, "hr.requests", 3, 99)
    assert birth(one) == BORN and is_id(one)
    others = {
        derive(BORN, "hr.requests", 3, 100),
        derive(BORN, "hr.requests", 4, 99),
        derive(BORN, "hr.others", 3, 99),
        derive(BORN + 1, "hr.requests", 3, 99),
    }
    assert len(others | {one}) == 5


def test_an_edge_mints_into_its_own_slots() -> None:
    chance = random.Random(2)
    for _ in range(100):
        assert partition_of(mint_into(BORN, chance, {3, 17}, 32), 32) in (3, 17)
    with pytest.raises(ValueError, match="no id"):
        mint_into(BORN, chance, (), 32)


@given(st.text(max_size=60))
@example("req_019ad735-8400-7d8e-91b7-584a2265b1f5")
@example("req_019AD735-8400-7d8e-91b7-584a2265b1f5")
@example("req_019ad735-8400-4d8e-91b7-584a2265b1f5")
@example("req_019ad735-8400-7d8e-c1b7-584a2265b1f5")
@example("req_019ad73584007d8e91b7584a2265b1f5")
@example("req_019ad735-8400-7d8e-91b7-584a2265b1f5\n")
@example("req_٠19ad735-8400-7d8e-91b7-584a2265b1f5")
def test_only_one_spelling_is_an_id(text: str) -> None:
    tail = text.removeprefix("req_")
    try:
        parsed = uuid.UUID(tail) if tail.isascii() else None
    except ValueError:
        parsed = None
    valid = (
        text.startswith("req_")
        and parsed is not None
        and parsed.version == 7
        and str(parsed) == tail
    )
    assert is_id(text) == valid
    if not valid:
        with pytest.raises(InvalidId):
            birth(text)


@given(st.binary(max_size=64), st.integers(1, 64))
def test_a_partition_is_the_one_that_kafka_gives_the_key(key: bytes, partitions: int) -> None:
    from aiokafka.partitioner import DefaultPartitioner
    from aiokafka.partitioner import murmur2 as of_aiokafka

    assert murmur2(key) & 0x7FFFFFFF == of_aiokafka(key) & 0x7FFFFFFF
    everyone = list(range(partitions))
    assert partition_of(key, partitions) == DefaultPartitioner()(key, everyone, everyone)
