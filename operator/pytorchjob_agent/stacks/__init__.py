"""Where the workers are. `stack_dump` gets the stacks of running workers, `stack_analysis` reads them, and `profile`
takes them again and again for a person. `recorders` reads which collectives they have begun. May import `workers` and
everything below it.
"""
