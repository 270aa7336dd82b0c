"""How worker processes start, cold or warm, what they find at start, and what becomes of their output and failures.

May import `contract`, `system` and `torch_compat`.
"""
