"""Access to the Kubernetes API server: connection, client, reflector, store, lease, event recorder, credentials.

Nothing here knows what a PyTorchJob is: it may import `names`, `errors`, `tokens` and the agent's contract, never
`model`, `plan` or `observed`. The path of a watch: `client.watch` opens the stream, `errors.from_response` classifies a
failure, `reflector` decides whether the next attempt resumes or lists again (HTTP 410), `store` keeps the result.
"""
