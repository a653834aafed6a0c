# A bit of everything that CPython has in C: json, re, sqlite3, hashlib, zlib, decimal, sorting,
# generators, exceptions through C frames, threads, deep recursion.
import decimal, hashlib, itertools, json, re, sqlite3, struct, threading, zlib

records = json.load(open("in.json"))
print(len(records), sum(r["id"] for r in records))
again = json.loads(json.dumps(records, sort_keys=True))
assert again == records

text = open("in.txt").read()
words = re.findall(r"\b[a-z]{4,}\b", text)
print(len(words), len(re.sub(r"(\w)\1", r"<\1>", text)))
counts = {}
for word in words:
    counts[word] = counts.get(word, 0) + 1
print(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:5])

base = sqlite3.connect(":memory:")
base.execute("create table r (id integer, name text, score real)")
base.executemany("insert into r values (?, ?, ?)", [(r["id"], r["name"], r["score"]) for r in records])
base.create_function("half", 1, lambda x: x // 2)
print(base.execute("select count(*), half(sum(id)), round(avg(score), 3) from r where name like '%a%'").fetchone())
try:
    base.create_function("bad", 0, lambda: 1 // 0)
    base.execute("select bad()").fetchall()
except sqlite3.OperationalError as error:
    print("error:", error)

print(hashlib.sha256(text.encode()).hexdigest(), hashlib.md5(text.encode()).hexdigest())
packed = zlib.compress(text.encode(), 9)
print(len(packed), zlib.crc32(zlib.decompress(packed)))

decimal.getcontext().prec = 60
print(decimal.Decimal(2).sqrt(), struct.pack(">dI", 1.5, 7).hex())

def depth(n):
    if n == 0:
        raise KeyError("bottom")
    try:
        return depth(n - 1)
    finally:
        depths.append(n)

depths = []
try:
    depth(800)
except KeyError as error:
    print(error, len(depths))

results = [0] * 8
def work(index):
    results[index] = sum(hash(x) for x in itertools.permutations(range(6)) if x[0] == index % 6) & 0xffff
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(results)
