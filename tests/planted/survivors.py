"""Defects of workers that go on without a lost one: who goes on, and what they do about their operation."""

from collections.abc import Sequence

from tests.planted import Planted

SHRINK = "pytorchjob_operator/rounds/shrink.py"
WORKER = "pytorchjob_agent/workers/startup/pytorchjob_shrink.py"
TORCH = "pytorchjob_agent/workers/startup/pytorchjob_shrink_torch.py"
AGENT = "pytorchjob_agent/shrinks/round_shrinks.py"
GROWTH = "pytorchjob_operator/rounds/growth.py"
ROUNDS = ("tests/rounds/test_shrink.py",)
RANKS = ("tests/agent/workers/startup/test_shrink.py",)
REFERENCE = ("tests/torch/test_survivors.py",)
SHARES = ("tests/torch/test_shares.py",)
WHY = "a wrong gradient is never an option"

FOUND = "the simulation has found it once"

DEFECTS: Sequence[Planted] = [
    Planted(
        "a pod that has left its round proves that the round is over",
        FOUND,
        "pytorchjob_operator/rounds/awaited.py",
        "for index, uid in last.pod_uids.items() if last.has(index)]",
        "for index, uid in last.pod_uids.items()]",
        ROUNDS,
    ),
    Planted(
        "a failure counts again when its member reports it again",
        FOUND,
        "pytorchjob_operator/rounds/running.py",
        "if round_.has_left(member.index):",
        "if False:",
        ROUNDS,
    ),
    Planted(
        "a round that has just begun goes on without a member",
        FOUND,
        "pytorchjob_operator/rounds/formation.py",
        'answered=0, saves=0, shrinks="", peer_heard_at=None',
        "answered=0, saves=0, peer_heard_at=None",
        ROUNDS,
    ),
    Planted(
        "a save that is reported late is taken for the one to come back with",
        "the steps since the loss were repeated",
        GROWTH,
        "return now - since < transition.state.policy.rejoin_within",
        "return pace is None or pace.at < since",
        ROUNDS,
    ),
    Planted(
        "a share that was lost within its step stays lost",
        WHY,
        TORCH,
        "enumerate(default.included or ()) if not count]",
        "enumerate(default.included or ()) if count < 0]",
        SHARES,
    ),
    Planted(
        "gradients of all shares are divided by the ranks that are left",
        WHY,
        TORCH,
        "self.world if self.counts or not ranks else",
        "self.world if not ranks else",
        SHARES,
    ),
    Planted(
        "a loss moves shares between ranks that go on",
        "two ranks one step apart would do the same share",
        WORKER,
        'max(ranks, key=lambda rank: (zlib.crc32(b"%d of %d" % (share, rank)), rank))',
        "sorted(ranks)[share % len(ranks)]",
        RANKS,
    ),
    Planted(
        "a rank that hangs is left behind, whatever its cause",
        WHY,
        SHRINK,
        "(failure.stopped or not failure.hang)",
        "True",
        ROUNDS,
    ),
    Planted(
        "one of several pods without a connection is taken for the lost one",
        "the others would go on without a pod that lives",
        "pytorchjob_operator/rounds/losses.py",
        "sum(member.connection is None for member in members) == 1",
        "sum(member.connection is None for member in members) >= 1",
        ROUNDS,
    ),
    Planted(
        "a pod whose workers' connections have ended may still connect again",
        "the others stand still for seconds",
        "pytorchjob_operator/rounds/losses.py",
        "if member.lost_at is not None and _workers_have_lost_it(state, member):",
        "if False and _workers_have_lost_it(state, member):",
        ROUNDS,
    ),
    Planted(
        "workers that are asked to save stop behind that save",
        "they do not answer the request, and all stand still for five seconds",
        SHRINK,
        " and not asked",
        "",
        ROUNDS,
    ),
    Planted(
        "workers stop at a save although nobody waits",
        "they stand still for five seconds",
        WORKER,
        "self._saved = self._agent.awaited",
        "self._saved = True",
        RANKS,
    ),
    Planted(
        "workers that stand still behind a save wait for the next one",
        "the steps of the seconds in between are repeated, or nothing is done in them",
        GROWTH,
        "if member.shrinks == ShrinkState.HELD or may_save(round_, member):",
        "if may_save(round_, member):",
        ROUNDS,
    ),
    Planted(
        "nobody hears that the awaited pod is gone again",
        "the workers stop at a save for nobody",
        GROWTH,
        "changes = (at is None) is not (phase.gathered_at is None)",
        "changes = at is not None and phase.gathered_at is None",
        ROUNDS,
    ),
    Planted(
        "those that go on hear of the last loss alone",
        WHY,
        SHRINK,
        "members, ends = tuple(sorted(round_.left)), [0, *accumulate(round_.nprocs)]",
        "members, ends = (max(round_.left),), [0, *accumulate(round_.nprocs)]",
        ROUNDS,
    ),
    Planted(
        "a rank that saves is left behind",
        WHY,
        SHRINK,
        "if lost.saves:",
        "if False:",
        ROUNDS,
    ),
    Planted(
        "a rank that may have lost another one is left behind",
        WHY,
        SHRINK,
        "not doubt(failure.evidence) and",
        "",
        ROUNDS,
    ),
    Planted(
        "workers that cannot go on are told to",
        WHY,
        SHRINK,
        "if member.shrinks not in (ShrinkState.READY, ShrinkState.BROKEN):",
        "if False:",
        ROUNDS,
    ),
    Planted(
        "a failure of a lost member is free",
        WHY,
        SHRINK,
        "transition.state = replace(state, history=history, restarts=state.restarts + 1)",
        "transition.state = replace(state, history=history)",
        ROUNDS,
    ),
    Planted(
        "the ranks of a member with several workers leave one by one",
        WHY,
        SHRINK,
        "for rank in range(ends[each], ends[each + 1]))",
        "for rank in range(ends[each], ends[each] + 1))",
        ROUNDS,
    ),
    Planted(
        "a rank that is behind repeats what another one has handed out",
        WHY,
        WORKER,
        "return Resolution.REPEAT if standings[rank].finished == highest else Resolution.TAKE",
        "return Resolution.REPEAT",
        RANKS,
    ),
    Planted(
        "ranks in different operations go on",
        WHY,
        WORKER,
        "if len(there) > 1:",
        "if False:",
        RANKS,
    ),
    Planted(
        "a broadcast is repeated without its root",
        WHY,
        WORKER,
        "if repeats and root >= 0 and root not in standings:",
        "if False:",
        RANKS,
    ),
    Planted(
        "a broadcast is repeated by a number that another rank has now",
        WHY,
        TORCH,
        '            default.check_rank("broadcast", root)\n            if again:',
        "            if again:",
        REFERENCE,
    ),
    Planted(
        "the average counts the lost rank",
        WHY,
        TORCH,
        "return self.world if self.counts or not ranks else len(ranks)",
        "return self.world",
        REFERENCE,
    ),
    Planted(
        "gradients are repeated from what was averaged before",
        WHY,
        TORCH,
        "        for view, own in zip(self._views, self._gradients, strict=True):\n            view.copy_(own)",
        "        return",
        REFERENCE,
    ),
    Planted(
        "gradients that are views of the bucket are not kept",
        WHY,
        TORCH,
        "and gradient.data_ptr() != view.data_ptr()",
        "and True",
        REFERENCE,
    ),
    Planted(
        "gradients begin before the comparison, at some ranks",
        "gloo ended a process: received data size doesn't match expected size",
        TORCH,
        "if not operations.stale and not operations.unchecked:",
        "if not operations.stale:",
        REFERENCE,
    ),
    Planted(
        "everybody is a worker of the round",
        WHY,
        AGENT,
        'if not secrets.compare_digest(str(hello["secret"]), self._secret):',
        "if False:",
        RANKS,
    ),
]
