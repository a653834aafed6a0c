# needs: root redis-server redis-tools
# not run: fettle record --kernel: it serves until it is ended
(fettle record --kernel --no-probes -o nginx.fettle -- redis-server --port 17393 --save "" --appendonly no > /dev/null 2>&1; echo done > done) &
while ! redis-cli -p 17393 ping > /dev/null 2>&1; do sleep 0.1; done
redis-benchmark -p 17393 -q -n 300 -c 2 -t get > /dev/null 2>&1
for n in 1 2 3 4 5; do redis-cli -p 17393 eval 'for i = 1, 10000000 do end' 0 > /dev/null 2>&1; done
redis-cli -p 17393 shutdown nosave > /dev/null 2>&1
while [ ! -e done ]; do sleep 0.1; done
