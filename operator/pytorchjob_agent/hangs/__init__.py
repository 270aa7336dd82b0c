"""Whether running workers hang: an extension. `judge` decides it, purely; `watch` collects the evidence and calls it.

The evidence: reported progress (`script`), lines of the log (`log_tracker`), /proc (`process_reader`; `activity` and
`stillness` judge it, `meter` connects them) and stacks (the core's `stacks`). `round_hangs` is what the core calls.
"""
