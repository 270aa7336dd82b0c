"""Why a job does not train: a table of causes, each with the rule that recognizes it and the remedy.

Each module has the causes of one area, as rows, and `find(seen)`, which yields those that hold. A rule yields nothing
if it is not certain. `table` puts the areas together, the root first.
"""
