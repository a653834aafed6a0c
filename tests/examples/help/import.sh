# needs: strace
# instead: ./server => ls
# not run: perf script: perf needs the machine's own kernel; crates/data/import/tests has its output
# not run: fettle import trace.dat: trace-cmd needs the machine's own kernel; crates/data/import/tests has its files
# not run: fettle import ~/lttng-traces: LTTng's daemon would have to run; crates/data/import/tests has its files
# not run: fettle sensors read rpc.calls: programs with traced stubs would have to run; cargo xtask rpc runs them
cat > spans.json <<'J'
{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}]},"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"order","startTimeUnixNano":"1544712660000000000","endTimeUnixNano":"1544712661000000000"}]}]}]}
J
cp spans.json front.json
cp spans.json cart.json
