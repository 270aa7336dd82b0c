"""The coordinator's shell: agents connect, `rounds` decides, this package sends the commands. It has its own thread.

`thread` is its front for the rest of the operator. `server` accepts connections, `authentication` checks each
hello, `connection` is one of them, `jobs` feeds the decisions. `turns`, `usage`, `limits` and the contract's
`unauthenticated` bound what any peer, job or namespace may use. May import `rounds`, the report's and update's values
and the agent's contract: no cluster and no library, so that it can become a process of its own.
"""
