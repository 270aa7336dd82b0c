"""Dashboards, alerts and per-job series as code: `python -m monitoring` writes them into the chart's files."""
