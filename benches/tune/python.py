# Objects, containers, text. Takes how many rounds it goes; without an end otherwise.
import json, os, re, sys
rounds = int(sys.argv[1]) if len(sys.argv) > 1 else -1
out = os.open('/dev/null', os.O_WRONLY)
class Node:
    def __init__(self, value): self.value, self.next = value, None
    def add(self, n): return self.value + n
while rounds:
    rounds -= 1
    head = None
    for i in range(100):
        node = Node(i); node.next = head; head = node
    total = 0
    while head is not None:
        total = head.add(total); head = head.next
    data = {str(i): [i, i * 3, 'x' * (i % 7)] for i in range(40)}
    words = sorted(re.findall(r'[a-z]+', json.dumps(data)))
    text = ','.join(f'{w}:{len(w)}' for w in words if w)
    os.write(out, b'.')
