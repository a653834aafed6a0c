# needs: root redis-server redis-tools lua5.4
# instead: inferno-flamegraph => cat
cat > script.lua <<'LUA'
local t = {}
for i = 1, 2000 do t[i] = ("%d"):format(i * 7 % 1000) end
table.sort(t)
print(#t)
LUA
fettle record -q -o run.fettle -- lua5.4 script.lua > /dev/null
(fettle record --kernel --no-probes -o nginx.fettle -- redis-server --port 17391 --save "" --appendonly no > /dev/null 2>&1; echo done > done) &
while ! redis-cli -p 17391 ping > /dev/null 2>&1; do sleep 0.1; done
redis-benchmark -p 17391 -q -n 500 -c 4 -t get > /dev/null 2>&1
redis-cli -p 17391 shutdown nosave > /dev/null 2>&1
while [ ! -e done ]; do sleep 0.1; done
