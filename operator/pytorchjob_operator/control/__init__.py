"""Observe, plan, apply: what carries a pure plan to the API server."""
