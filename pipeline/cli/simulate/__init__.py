"""`headrace simulate`: the whole pipeline in one process, in virtual time, with seeded faults.

It runs the modules that production runs, on the memory log; nothing is modelled twice. Every choice comes
from the seed, so the same seed leaves the same log, hash for hash.
"""
