"""Observe, plan, apply: the reconcile loop around the pure plan.

`queue` decides when a job is reconciled, and after a refused write how soon again (`kube/backoff`). `caches` and
`job_cache` hold what is observed, `reconcile` runs one pass, and `apply` is the only module that writes to the API
server. `pace` is for pods that others delete again and again. This package may import `kube`, `plan`, `observed` and
`model`, not `app` or `local`. Decisions about a job belong in `plan`.
"""
