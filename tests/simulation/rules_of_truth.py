"""Rules of the two folds: who runs a request and how it ended, what was said."""

from tests.simulation.mutant import Mutant

TRUTH = (
    # who runs it, and how it ended
    Mutant(
        "lease not read back",
        "stages/orchestration/dispatch.py",
        "        if not entry.counts or case is None:\n            return\n",
        "        if case is None:\n            return\n",
        "an order goes out only for the lease that counts",
    ),
    Mutant(
        "latest lease counts",
        "schemas/folds.py",
        "if self.ended or attempt != self.n + 1:",
        "if self.ended or attempt not in (self.n, self.n + 1):",
        "the first lease of a number counts",
    ),
    Mutant(
        "same attempt to a new epoch",
        "stages/orchestration/dispatch.py",
        "attempt = case.fold.n + 1 if case is not None else 1",
        "attempt = max(1, case.fold.n) if case is not None else 1",
        "an attempt belongs to one life of one worker",
    ),
    Mutant(
        "any output counts",
        "schemas/folds.py",
        "if self.ended or attempt != self.n:\n            return False\n        self.ended",
        "if self.ended:\n            return False\n        self.ended",
        "only the holder of the current attempt ends a request",
    ),
    Mutant(
        "a second output counts",
        "stages/delivery/winner.py",
        '            request_id in self._ended or kind == "cancel" or not',
        '            kind == "cancel" or not',
        "the first output that counts is the outcome",
    ),
    Mutant(
        "a lease is done before its outcome",
        "stages/delivery/winner.py",
        "            self._open[request_id] = opened\n            if kind",
        "            self._open[request_id] = opened\n            self._done(record.offset)\n"
        "            if kind",
        "a fold begins at its oldest open request",
    ),
    Mutant(
        "no look-up before a repeated lease",
        "stages/delivery/winner.py",
        "                self.unsure.append(opened)",
        "                pass",
        "unknown is not none: a late repeat of a lease opens nothing",
        first=428,
    ),
    Mutant(
        "no look-up before a result",
        "stages/delivery/outcomes.py",
        "if winners.doubtful(winner, since):",
        "if False:",
        "unknown is not none: its request may have ended before we began",
        first=428,
    ),
    Mutant(
        "no look-up before a lease",
        "stages/orchestration/arrivals.py",
        "elif books.history.doubtful(\n            ready.request_id, "
        "spoken_of_since(ready.request_id, ready.accepted)\n        ):",
        "elif False:",
        "unknown is not none: a ready record that is read again may have ended",
    ),
    Mutant(
        "redelivery writes no end",
        "stages/delivery/outcomes.py",
        "if known is not None and known != offset:",
        "if known is not None:",
        "result, end, account: a redelivered output writes what is missing",
        first=155,
    ),
    Mutant(
        "the end is not waited for",
        "stages/delivery/deliver.py",
        "            if self.watch(future):\n                then()\n\n        self.writer.send(record)"
        ".add_done_callback(acked)",
        "            self.watch(future)\n\n        self.writer.send(record).add_done_callback(acked)\n"
        "        then()",
        "done means acked",
    ),
    Mutant(
        "nothing is said before it is accepted",
        "pipeline/history.py",
        "return min(accepted, birth(request_id))",
        "return accepted",
        "a cancel may end a request before its record lands",
        first=75,
    ),
    # what was said
    Mutant(
        "a later attempt writes no open",
        "workers/outbox.py",
        "            attempt=order.attempt,\n            worker=order.worker,\n"
        "            epoch=order.epoch,\n            silent=silent,",
        "            attempt=1,\n            worker=order.worker,\n"
        "            epoch=order.epoch,\n            silent=silent,",
        "what a zombie says after the next open is void",
    ),
    Mutant(
        "an open fences nobody",
        "schemas/folds.py",
        "if self.closed or attempt != self.attempt or k < e:",
        "if self.closed or k < e:",
        "a chunk counts if its attempt is in force",
    ),
    Mutant(
        "repeats are shown",
        "schemas/folds.py",
        "if self.closed or attempt != self.attempt or k < e:",
        "if self.closed or attempt != self.attempt:",
        "each token once",
    ),
    Mutant(
        "holes are skipped",
        "schemas/folds.py",
        "        if k > e:\n            return Effect.HOLE\n",
        "",
        "never skip a token that may still come: writers that keep their order leave no hole",
        test="tests/schemas/test_folds.py",
    ),
    Mutant(
        "output before the last chunk",
        "workers/runs.py",
        "        await self._outbox.settled(run.speaker)\n",
        "        self._outbox.flush(run.speaker)\n",
        "the stream is as long as the result",
    ),
    Mutant(
        "a later attempt starts again",
        "workers/runs.py",
        "            prefix = spoken.prefix(order.ready.n)\n",
        "            prefix = type(spoken)().prefix(order.ready.n)\n",
        "attempt n + 1 goes on where the log ends",
    ),
    Mutant(
        "the prefix is read beyond the open",
        "workers/prefix.py",
        "if record.key == key and record.offset <= opened.offset:",
        "if record.key == key and record.offset < opened.offset - 3:",
        "the prefix is all that counts before our own open",
    ),
    Mutant(
        "the end takes nothing from the output",
        "stages/edge/frames.py",
        "return end.tokens > self.fold.seq or unfinished",
        "return False",
        "a stream that has less than the result takes the rest from it: only an answer out of a cache has",
        test="tests/stages/edge/test_frames.py",
    ),
    Mutant(
        "resume behind the offset",
        "stages/edge/cursor.py",
        "feed.position = cursor.offset - 1",
        "feed.position = cursor.offset",
        "the record at the offset says which attempt was in force",
    ),
    Mutant(
        "resume shows it again",
        "stages/edge/frames.py",
        "if (offset, j) <= self.after or not body[1]:",
        "if (offset, j) < self.after or not body[1]:",
        "a client sees each frame once",
    ),
    Mutant(
        "the join skips what came meanwhile",
        "stages/edge/feeds.py",
        "        for record in pending:\n            if self.full",
        "        for record in pending[:0]:\n            if self.full",
        "past and present join without a gap",
        first=8,
    ),
)
