# instead: $(pgrep -o nginx) => $(cat pid) --state state --duration 300ms
# instead: 127.0.0.1:9818 => 127.0.0.1:0
# instead: --history => --history --state state
# instead: ~/.local/state/fettle/watch/stuck-4712-1796000000000 => evidence
mkdir evidence
echo '{"rule":0,"process":{"pid":4712,"start":1},"since_ns":1,"why":{"kind":"cycle","tids":[4712,4713]}}' > evidence/finding.json
(sleep 60 & echo $! > pid)
cat > web.rules <<'R'
rule stuck  { worker of "nginx" spins 3ms without progress -> keep evidence, restart kill }
rule dead   { process of "app" waits in a cycle -> keep evidence, signal TERM at most 1 in 1m }
rule asleep { worker of "nginx" sleeps 5ms while it holds bytes -> run "logger asleep" }
rule beat   { scalar "web.ticks" of process of "web" still for 4ms -> signal USR1 }
rule told   { process of "db" waits in a cycle -> webhook "http://127.0.0.1:9000/hung" }
rule path   { scalar "put.moved" of process of "web" still for 1s -> set "put.path" to 0 for 10s }
rule late   { p99 of histogram "web.time" of process of "web" > 20ms over 1s -> locate, tune }
rule bad    { share of failed requests "*" of process of "web" > 2% over 5s -> keep evidence, locate }
R
