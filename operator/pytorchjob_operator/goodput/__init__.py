"""The ledger of a job's time: every second of its wall clock belongs to exactly one class. Pure.

`classes` has the classes, `ledger` books seconds by what is visible from outside the script, `interruptions` counts
what broke rounds, `figures` reads a stored status at any moment, and `sentence` and `advice` put them into words.
`accounting`, beside this package, lets the ledger observe the decisions about rounds.
"""
