// Exceptions that leave JavaScript for C++ and come back: through callbacks, accessors and comparisons that
// built-in functions call, out of timers, out of deep recursion.
const caught = f => { try { return f(); } catch (e) { return e instanceof Error ? e.message : e; } };
const say = typeof print === 'function' ? print : console.log;
let sum = 0;
for (let n = 0; n < 2000; n++) {
    sum += caught(() => JSON.parse('[1, 2]', () => { throw n; }));
    sum += caught(() => [2, 1].sort(() => { throw n; }));
    sum += caught(() => 'aab'.replace(/a+/, () => { throw n; }));
    sum += caught(() => JSON.stringify({ get a() { throw n; } }));
    sum += caught(() => Reflect.construct(class { constructor() { throw n; } }, []));
}
say(sum);
const down = n => n === 0 ? caught(() => { throw new Error('deep'); }) : down(n - 1);
say(down(100));
const forever = () => forever() + 1;
say(caught(() => { try { forever(); } catch (e) { throw 'no end'; } }));
let garbage = [];
for (let n = 0; n < 100000; n++) { garbage.push({ n, more: [n] }); if (garbage.length > 1000) garbage = []; }
say(garbage.length);
if (typeof process === 'object') {
    process.on('uncaughtException', e => say('uncaught', e.message));
    for (let n = 0; n < 5; n++) setTimeout(() => { throw new Error(n); }, 1);
    (async () => { await null; throw new Error('async'); })().catch(e => say(e.message));
}
