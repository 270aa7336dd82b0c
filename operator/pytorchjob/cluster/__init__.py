"""The only part that talks to a cluster: a person's kubeconfig, requests, and errors as sentences.

`api` is the interface, `remote` a cluster and `machine` the local runs behind it. `kubeconfig`, `plugin` and `connect`
find the server, `http` sends a request and tries again, `watching` follows changes, and `failures` explains refusals.
`gather` reads all that one job's view needs.
"""
