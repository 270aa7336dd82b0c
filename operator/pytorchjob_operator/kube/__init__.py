"""The API server, and nothing of jobs: connection, client, reflector, store, lease, event recorder."""
