"""Commit events of a Python program to Fettle's sensors.

    import fettle

    requests = fettle.List("web.request", 7, 1)
    requests.commit(1, (url, size))

Without FETTLE_SENSORS in the environment nothing is made, and an event costs a call of a function.
"""

from ._sensor import Histogram, List, Scalar, tsc

DROP, OVERWRITE, WAIT = 0, 1, 2

__all__ = ["DROP", "Histogram", "List", "OVERWRITE", "Scalar", "WAIT", "tsc"]
