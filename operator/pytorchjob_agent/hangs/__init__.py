"""Whether living workers are stuck: rules, what /proc and the output show, the judgement, the stacks.

May import `script`, `workers` and everything below them.
"""
