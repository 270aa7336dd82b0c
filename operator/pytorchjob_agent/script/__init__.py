"""Between a training script and its agent: progress, checkpoint requests, and the shared file that carries them.

`api` runs inside the user's script. May import `contract` and `system`.
"""
