function fib(n){return n<2?n:fib(n-1)+fib(n-2)} print(fib(18));
try { null.x } catch(e) { print("caught", e) }
try { throw {a:[1,2,{b:3}]} } catch(e) { print(JSON.stringify(e)) }
var s=""; for (var i=0;i<50;i++) { try { if (i%3==0) throw i; s+=i } catch(x) { s+="["+x+"]" } finally { s+="," } } print(s);
print([3,1,2].sort().join(), "abc".replace(/b/g, function(m){return m.toUpperCase()}), Math.sin(1), 0.1+0.2, 1e21, parseInt("ff",16), (255).toString(2));
print(new Date(0).toISOString(), /(\d+)-(\w+)/.exec("x 12-ab"), typeof undefinedthing, [1,2,3].map(function(x){return x*x}));
print(JSON.stringify({a:1,b:"\u1234",c:[true,null]}), encodeURIComponent("ä b"), isNaN(NaN), -0, 1/3);
undefinedcall();
