"""Which members of a job train together: rounds, ranks and restarts, as an explicit state machine. Pure.

`phases` has the machine's table, `decide` is the entry, `coordinator/` is the shell. The files follow a member's way:
`arrivals` (hello), `rendezvous` (between two rounds), `awaited` (how long it waits for more pods), `formation` (ranks),
`running` (messages while a round runs), `threats` (pods that may be lost soon), `losses` (members that are gone),
`budget` (what a failure leads to), `summary` (what the operator shows of it).
`invariants` checks every decision, `recording` writes and replays decisions. This
package may import only the report's values and the agent's contract.

It imports nothing by itself: `plan`, `view` and commands use single values of it, and do without the machine.
"""
