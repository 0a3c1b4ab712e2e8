from collections.abc import AsyncIterator

import pytest

from .backstage import Backstage, EdgeUnderTest, an_edge, backstage


@pytest.fixture
async def back() -> AsyncIterator[Backstage]:
    async with backstage() as behind:
        yield behind


@pytest.fixture
async def edge(back: Backstage) -> AsyncIterator[EdgeUnderTest]:
    async with an_edge(back) as under:
        yield under
