"""The coordinator's shell: agents connect, `rounds` decides, this package sends the commands. It has its own thread.

`thread` is its front for the rest of the operator. `server` accepts connections, `authentication` checks each
hello and refuses what exceeds a share of the connections, `connection` is one of them, `jobs` feeds the decisions.
`limits` has the numbers that bound each peer, job and namespace, `usage` counts what they use, `turns` and the
contract's `unauthenticated` decide whose turn it is. May import `rounds`, the report's and update's values
and the agent's contract: no cluster and no library, so that it can become a process of its own.
"""
