"""Between a training script and its agent: progress, checkpoint requests, and the progress file that carries them.

`api` is the script's side and runs inside the user's process, `agent_side` is the agent's, and `progress_file` is the
layout that both share. `api` and `progress_file` import nothing else of the agent; `agent_side` may import `contract`
and `system`.
"""
