// JSON, regular expressions, closures, exceptions, promises, typed arrays, zlib, workers' events.
const fs = require('fs'), zlib = require('zlib'), crypto = require('crypto');
const fib = n => n < 2 ? n : fib(n - 1) + fib(n - 2);
console.log(fib(24));
const data = JSON.parse(fs.readFileSync('in.json'));
console.log(data.length, data.reduce((s, r) => s + r.id, 0));
const text = fs.readFileSync('in.txt', 'utf8');
const count = new Map();
for (const [w] of text.matchAll(/[a-z]{4,}/g)) count.set(w, (count.get(w) ?? 0) + 1);
console.log([...count].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, 5).join(' '));
let caught = 0;
for (let n = 0; n < 20000; n++) try { if (n % 2) throw new Error(n); } catch (e) { caught += e.message.length; }
console.log(caught);
console.log(crypto.createHash('sha256').update(text).digest('hex'), zlib.deflateSync(text).length);
const f = new Float64Array(1000).map((_, i) => Math.sin(i)); console.log(f.reduce((a, b) => a + b).toFixed(9));
(async () => { let s = 0; for (let n = 0; n < 200; n++) s += await new Promise(r => setImmediate(() => r(n))); console.log(s); })();
