"""The Python twin of c/producer.c. A seventh argument `fork` has a child of a fork do the same, and be waited for."""

import ctypes
import mmap
import os
import sys
import threading

import fettle

policy, slots, ring_log2, threads, wanted = map(int, sys.argv[2:7])
with open(sys.argv[1], "r+b") as file:
    truth = mmap.mmap(file.fileno(), 4096)
events = fettle.List("test.events", 1, 1, policy, ring_log2=ring_log2, slots=slots)
# Stored at once: `struct` fills its bytes with zeros first, and a kill may come between.
words = (ctypes.c_uint64 * 512).from_buffer(truth)


def work(thread):
    i = 0
    while wanted == 0 or i < wanted:
        word = thread << 48 | i
        i += 1
        words[2 * thread] = i
        events.commit(i - 1 & 0xFFFF, (word, word * 0x9E3779B97F4A7C15))
        words[2 * thread + 1] = i


if sys.argv[7:] == ["fork"]:
    # The parent has made its sensor and its slot; the child must write to neither.
    events.commit(0, (0, 0))
    if os.fork() != 0:
        os.wait()
        sys.exit()
running = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
for thread in running:
    thread.start()
for thread in running:
    thread.join()
