"""From the command line to torch: the pod's first process, the launcher's process, and the launcher itself.

`first_process` handles signals and forks `launcher_process`, which imports torch and calls `launcher`. A command of the
user's comes in by `startup`, and its launcher by `member_launch`. The top of the agent: it may import every other
package but `standalone`.
"""
