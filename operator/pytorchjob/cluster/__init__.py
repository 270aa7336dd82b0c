"""The only part that talks to a cluster: a person's kubeconfig, requests, and errors as sentences."""
