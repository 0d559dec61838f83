"""Whether a job is being unpacked in this process, which may import modules of its own.

A module that trains when it is imported would start workers that import it, and so on.
"""

is_going_on = False
