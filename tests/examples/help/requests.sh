# needs: root redis-server redis-tools
# instead: 812 => 7
# instead: dot -Tsvg => cat
# not run: fettle record --kernel: it serves until it is ended
# not run: fettle requests nginx.fettle --follow: the trace is whole; crates/app/cli/tests/requests.rs follows one
# not run: fettle requests nginx.fettle --sql: it needs a build with the feature query; make test-query tests it
# not run: fettle requests nginx.fettle --python: pyarrow is not part of Debian 12; crates/app/cli/tests/requests.rs tests it where it is
(fettle record --kernel --no-probes -o nginx.fettle -- redis-server --port 17391 --save "" --appendonly no > /dev/null 2>&1; echo done > done) &
while ! redis-cli -p 17391 ping > /dev/null 2>&1; do sleep 0.1; done
redis-benchmark -p 17391 -q -n 500 -c 4 -t get > /dev/null 2>&1
redis-cli -p 17391 shutdown nosave > /dev/null 2>&1
while [ ! -e done ]; do sleep 0.1; done
cp -r nginx.fettle before.fettle
span() {
  echo '{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"'$1'"}}]},"scopeSpans":[{"spans":[{"name":"cart/get","kind":'$2',"startTimeUnixNano":"154471266'$3'000000000","endTimeUnixNano":"154471266'$4'000000000"}]}]}]}'
}
span front 3 0 6 > front.json
span cart 2 1 5 > cart.json
cp -r nginx.fettle after.fettle
fettle schema show queues > mine.fettle-schema
cat > calls.jsonl <<'J'
{"event":1,"ns_per_tick":1.0,"pid":10,"sensor":"rpc.calls","thread":10,"ticks":9000,"time_ns":1700000000000009000,"type":"event","version":1,"words":[1000,9293336749163937808,1,5,7,1,2,77,0]}
{"event":1,"ns_per_tick":1.0,"pid":20,"sensor":"rpc.calls","thread":20,"ticks":8000,"time_ns":1700000000000008000,"type":"event","version":1,"words":[3000,9293336749163937809,4294967296,7,5,3,4,78,0]}
J
echo '{"fettle_calls":1,"services":[{"name":"shop.Shop","methods":[{"name":"Buy"}]}]}' > shop.fettle-calls
cat > shop.fettle-schema <<'S'
event rpc_begin(trace: text, span: text, method: text, optional candidates: i64, optional likely: i64)
event rpc_end(trace: text, span: text)
timeline call(trace: text, span: text)
on rpc_begin { start call(trace, span)  choice likely among candidates  seed method }
on rpc_end { stop call(trace, span) }
S
