# Exceptions through built-in functions and generators, recursion without end, signals, threads, garbage.
import gc, re, signal, sys, threading, time


def down(n):
    if n == 0:
        raise ValueError("deep")
    return down(n - 1) + 1


def caught(f):
    try:
        return f()
    except Exception as e:
        return str(e)


def key(n):
    raise KeyError(n)


def forever(n):
    return forever(n + 1) + 1


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


total = 0
for n in range(500):
    total += len(caught(lambda: down(20))) + len(caught(lambda: sorted([2, 1], key=key)))
    total += len(caught(lambda: re.sub("a", key, "baa"))) + len(caught(lambda: sum(key(i) for i in [n])))
print(total)
try:
    forever(0)
except RecursionError:
    print("no end")
print(fib(18))
threads = [threading.Thread(target=fib, args=(15,)) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
signal.signal(signal.SIGALRM, lambda *_: print("alarm"))
signal.setitimer(signal.ITIMER_REAL, 0.05)
time.sleep(0.2)
print(len({i: str(i) for i in range(20000)}), gc.collect() is None)
sys.exit(3)
