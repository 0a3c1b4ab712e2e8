"""What the write-ahead log costs: it is moved when there is much to move, and then left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.embedded import store
from pipeline.embedded.store import Store, Transaction


async def put(kept: Store, size: int) -> None:
    def apply(transaction: Transaction) -> None:
        transaction.db.execute("INSERT OR REPLACE INTO facts VALUES ('x', ?)", (bytes(size),))

    await kept.write(apply)


async def test_an_idle_log_is_not_moved_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, moves = Store(tmp_path), []
    move = kept._checkpoint

    def counted(mode: str) -> bool:
        moves.append(mode)
        return move(mode)

    monkeypatch.setattr(kept, "_checkpoint", counted)
    await put(kept, store._CHECKPOINT_BYTES)
    await kept.checkpoint()
    assert moves == ["PASSIVE"]
    for _ in range(3):
        await put(kept, 100)
        await kept.checkpoint()
    assert moves == ["PASSIVE"]
    await put(kept, 2 * store._CHECKPOINT_BYTES)  # the file grows: there is more than there was
    await kept.checkpoint()
    assert moves == ["PASSIVE", "PASSIVE"]
    for _ in range(store._FEW):
        await put(kept, 100)
    await kept.checkpoint()
    assert len(moves) == 3
    await kept.close()
