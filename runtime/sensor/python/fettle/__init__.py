"""Commit events of a Python program to Fettle's sensors.

    import fettle

    requests = fettle.List("web.request", 7, 1)
    requests.commit(1, (url, size))

A knob is a number that others set (`fettle sensors set`, rules of `fettle watch`):

    path = fettle.Knob("put.path", 7, 4, 0, 0, 3)  # 0 if nothing is said; else 0 to 3
    if path.get() == 2: ...

Without FETTLE_SENSORS in the environment nothing is made, and an event costs a call of a function.
"""

from ._sensor import Histogram, Knob, List, Scalar, tsc

DROP, OVERWRITE, WAIT = 0, 1, 2

__all__ = ["DROP", "Histogram", "Knob", "List", "OVERWRITE", "Scalar", "WAIT", "tsc"]
