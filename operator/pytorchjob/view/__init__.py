"""Objects become values for people: pure functions of plain dicts and a time. No client, no clock.

`job_view` is a job with its pods (`rows`), its `state`, its `progress` and its `restarts`; `listing` is the list of
jobs, `cluster_view` an installation. `causes` says why a job does not train. `reading` reads fields that may be
missing.
"""
