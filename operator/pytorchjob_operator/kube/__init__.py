"""Access to the Kubernetes API server: connection, client, reflector, store, lease, event recorder, credentials.

Nothing here knows what a PyTorchJob is: it may import `names`, `errors` and the agent's contract, never `model`, `plan`
or `observed`. The path of a watch: `client.watch` opens the stream, `errors.from_response` classifies a failure,
`reflector` decides whether the next attempt resumes or lists again (HTTP 410), `store` keeps the result. `lease` is the
leader's term, `fence` stops its writes, and `fenced_connector` checks each request at the socket. `pod_token` verifies
a pod's credential; `credentials` and `certificate` are the coordinator's.
"""
