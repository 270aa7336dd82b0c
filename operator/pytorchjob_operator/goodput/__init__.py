"""The ledger of a job's time: every second of its wall clock belongs to exactly one class. Pure.

`classes` has the classes, `ledger` books seconds by what is visible from outside the script, `figures` reads a stored
status at any moment, and `sentence` puts them into words.
"""
