"""Whether running workers hang. `judge` decides it, purely; `watch` collects the evidence and calls it.

The evidence: reported progress (`script`), lines of the log (`log_tracker`), /proc (`process_reader`; `activity` and
`stillness` judge it, `meter` connects them) and stacks (`stack_dump` gets them, `stack_analysis` reads them). May
import `script`, `workers` and everything below them.
"""
