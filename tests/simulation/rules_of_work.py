"""Rules of those who do the work: writers, readers, members, doors."""

from tests.simulation.mutant import Mutant

WORK = (
    # writes
    Mutant(
        "go on after a failed send",
        "pipeline/writer.py",
        "        queue.waiting.extendleft(reversed(batch))\n        if queue.failures % 20 == 1:",
        "        queue.waiting.extend(batch)\n        if queue.failures % 20 == 1:",
        "from the first unacked record, before anything newer",
    ),
    Mutant(
        "a failed send is dropped",
        "pipeline/writer.py",
        "        queue.waiting.extendleft(reversed(batch))\n        if queue.failures % 20 == 1:",
        "        self._fail(batch, error) if queue.failures > 1 else queue.waiting.extend(batch)\n"
        "        if queue.failures % 20 == 1:",
        "what was accepted is written",
    ),
    Mutant(
        "acked before it is written",
        "pipeline/attempt.py",
        "            await sent.acked()\n        except NotAuthorized:",
        "            pass\n        except NotAuthorized:",
        "a record is done when its outputs are acked",
    ),
    Mutant(
        "commit before done",
        "pipeline/tracker.py",
        "return self._begun[0] if self._begun else self.next",
        "return self.next",
        "the lowest incomplete offset is committed",
    ),
    Mutant(
        "begin at the end",
        "pipeline/committer.py",
        "            return Tracker(start, span=self.span, keep_map=self.keep_map)\n"
        "        if not start",
        "            return Tracker(end, span=self.span, keep_map=self.keep_map)\n        if not start",
        "a group without a commit begins at the log's start",
    ),
    Mutant(
        "active before the end was read",
        "pipeline/follow.py",
        "part.target is not None and part.tracker.next >= part.target",
        "part.target is not None",
        "nothing follows from a fold that has not reached the end captured after the assignment: "
        "what would follow is void, since the log decides",
        test="tests/pipeline/test_follow.py",
    ),
    Mutant(
        "the end is asked for last",
        "pipeline/lookup.py",
        "    first = await _first(log, at, since_ms, start, end)\n",
        "    first = await _first(log, at, since_ms, start, end)\n"
        "    end = (await log.admin.end_offsets([at]))[at] - 1\n",
        "end first, then the start: nothing slips between",
    ),
    Mutant(
        "a lost answer is taken for an ack",
        "pipeline/writer.py",
        "        elif isinstance(error, LogUnavailable):\n            self._rest(queue, batch, error)\n",
        "        elif isinstance(error, LogUnavailable):\n"
        "            self._acknowledge(queue, batch, Ack(0, self._clock.ms()))\n",
        "acks=all: what nobody has confirmed may be lost",
    ),
    Mutant(
        "repeated with new bytes",
        "workers/outbox.py",
        "        k = voice.written\n",
        "        k = max(0, voice.written - 1)\n",
        "a worker repeats the same records: a chunk that says more than the last is dropped whole",
    ),
    # who is alive, and who may do what
    Mutant(
        "silence counts while behind",
        "pipeline/members.py",
        "        return self.hearing.silence(seen.heard if seen else 0.0)",
        "        now = asyncio.get_running_loop().time()\n"
        "        return now - (seen.heard if seen else 0.0) + 7.0",
        "silence is counted only while we hear",
    ),
    Mutant(
        "statuses without a counter",
        "pipeline/members.py",
        "            if status.counter <= current.counter:\n"
        "                return None  # a replaced writer's late batch\n",
        "            pass\n",
        "a late status turns nothing back: the next one, a second later, would mend it",
        test="tests/pipeline/test_presence.py",
    ),
    Mutant(
        "credits begin anew",
        "workers/credits.py",
        "        for epoch, share in self._shares(epochs, free).items():\n"
        "            short = max(0, share - self.outstanding(epoch))\n            self.total",
        "        for gone in self.total.keys() - set(epochs):\n            del self.total[gone]\n"
        "            self.used.pop(gone, None)\n"
        "        for epoch, share in self._shares(epochs, free).items():\n"
        "            short = max(0, share - self.outstanding(epoch))\n            self.total",
        "whoever was silent goes on with its count: seeds rarely use up a share with every worker before",
        test="tests/workers/test_credits.py",
    ),
    Mutant(
        "an order is taken twice",
        "workers/inbox.py",
        "        if key in self._taken:\n",
        "        if key in self._taken and len(self._taken) % 2:\n",
        "a worker takes each attempt once",
    ),
    Mutant(
        "an order that nobody wrote is not missed",
        "stages/orchestration/missing.py",
        "        elif case.lease is not None and hand.free(self.desk.member.epoch) > 0:\n",
        "        elif False:\n",
        "whoever wrote the lease may have died before the order",
    ),
    Mutant(
        "off the list before the output",
        "workers/runs.py",
        "            await self._write(run, await self._until_ended(run))\n        del self._runs[run.key]\n",
        "            ending = await self._until_ended(run)\n            del self._runs[run.key]\n"
        "            await asyncio.sleep(3.0)\n            await self._write(run, ending)\n",
        "a worker lists what it holds until its output is acked",
    ),
    Mutant(
        "the dead are never replaced",
        "stages/orchestration/judge.py",
        "return Step.END if fold.cancelled or now > deadline else Step.CONTINUE",
        "return Step.END if fold.cancelled or now > deadline else Step.NOTHING",
        "a request whose worker died is continued",
    ),
    Mutant(
        "a superseded attempt goes on",
        "workers/control.py",
        "            self._runs.stop(message.request_id, message.attempt, SUPERSEDED)\n",
        "            pass\n",
        "a zombie learns that it is one, and frees its device",
    ),
    Mutant(
        "a cancel is not heard",
        "workers/control.py",
        "            self._runs.stop(message.request_id, message.attempt, ending)\n",
        "            self._remember(message)\n",
        "a cancel stops the device within one step",
    ),
    Mutant(
        "a drained worker keeps its work",
        "workers/role.py",
        '            self._runs.stop_all(released("drain"))\n',
        "            pass\n",
        "what a drained worker does not finish is given back",
    ),
    Mutant(
        "two deaths are poison",
        "stages/orchestration/judge.py",
        "self.count >= min(DEATHS + others, DEATHS_LIMIT)",
        "self.count >= 2",
        "where workers die, a request may be hit twice before its first token",
    ),
    Mutant(
        "a poison is never found",
        "stages/orchestration/judge.py",
        "return self.faults >= FAULTS or ",
        "return self.faults >= FAULTS and ",
        "a request that kills its workers has an end",
    ),
    Mutant(
        "suspects keep company",
        "stages/orchestration/recovery.py",
        "alone=against.count > 0,",
        "alone=False,",
        "a suspect runs alone: whom a poison kills beside itself is struck for nothing",
    ),
    Mutant(
        "a given partition is written to",
        "stages/orchestration/dispatch.py",
        "            if not desk.owns(item.partition):\n",
        "            if False:\n",
        "who lost a partition leases nothing of it: its fold stands still",
    ),
    Mutant(
        "a waiting request is done at once",
        "stages/orchestration/waiting.py",
        "        self.desk.send(record).add_done_callback(\n",
        "        item.complete()\n        self.desk.send(record).add_done_callback(\n",
        "its ready record is complete when the waiting topic has it",
    ),
    Mutant(
        "a copy is done while the first is in hand",
        "stages/orchestration/arrivals.py",
        "                again.copies.append(item)\n",
        "                item.complete()\n",
        "a record is done when its lease counts: a late commit may pass the copy that is left",
        first=201,
    ),
    Mutant(
        "what was in hand is never read again",
        "stages/orchestration/pull.py",
        "            if owned.get(partition) is not books:\n",
        "            if partition not in owned:\n",
        "a partition that went and came back is read again from its commit",
        first=146,
    ),
    # the doors
    Mutant(
        "a copy is done before what it repeats",
        "stages/ingress/uses.py",
        "                await first.ended.wait()\n",
        "                return Found.AGAIN\n",
        "a copy is done when what it repeats is in the log: that one may never be written",
    ),
    Mutant(
        "the tail begins when it is read",
        "stages/edge/tail.py",
        "        results = self._member.topics.results\n        push,",
        "        await asyncio.sleep(1.0)\n"
        "        ends = await self._member.log.admin.end_offsets(self._at)\n"
        "        for at, end in ends.items():\n            self._reader.seek(at, end)\n"
        "        results = self._member.topics.results\n        push,",
        "position first, then ready",
    ),
    Mutant(
        "unknown tags are skipped",
        "stages/orchestration/arrivals.py",
        '        self.doubts.end(Ending(subject, "failed", unreadable(error), done))',
        "        buried.add_done_callback(lambda _: done())",
        "a record that nobody can read ends its request",
    ),
    Mutant(
        "a cancel does not outlive its reader",
        "stages/orchestration/books.py",
        '        elif kind == "cancel":\n            case.cancel = message or case.cancel\n',
        '        elif kind == "cancel":\n            case.fold.cancelled = False\n',
        "a cancel is a record of the ledger",
    ),
    Mutant(
        "a key without republishing",
        "stages/edge/native.py",
        "if not ticket.replayed or not await known(edge, feed, exchange.tenant):",
        "if not ticket.replayed:",
        "a key that names what no topic knows publishes it again",
    ),
    Mutant(
        "a key names two requests",
        "stages/edge/idempotency.py",
        "        return claim\n",
        "        return own\n",
        "one key, one request",
    ),
    Mutant(
        "another id at each reading",
        "stages/ingress/arrival.py",
        "return ids.derive(place.timestamp, place.topic, place.partition, place.offset)",
        "return ids.derive(place.timestamp, place.topic, place.partition, place.offset + 1)",
        "redelivery does not change the id of a record without one",
    ),
)
