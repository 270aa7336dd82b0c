"""The operator's process: it wires kopf, the caches, the queue and the HTTP server together, and decides nothing."""
