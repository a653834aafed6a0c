"""The Python twin of c/knob.c: says the knob's value for each line; after `fork` a child of a fork does."""

import os
import sys

import fettle

knob = fettle.Knob("test.knob", 3, 1, 1, -2, 5)
for wrong in [(0, 1, 2), (3, 1, 2), (0, -(2**63), 2)]:
    try:
        fettle.Knob("test.wrong", 3, 2, *wrong)
        sys.exit("a knob outside of its bounds was made")
    except ValueError:
        pass
for line in sys.stdin:
    if line == "fork\n" and os.fork() != 0:
        os.wait()
        sys.exit()
    print(knob.get(), flush=True)
