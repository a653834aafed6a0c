# instead: /etc/fettle/tuned.toml --check => servers.toml --check
# instead: fettle tuned /etc/fettle/tuned.toml => timeout --preserve-status -s TERM 2 fettle tuned servers.toml
# instead: --once --json => --once --json --state state
cat > servers.toml <<'R'
[[rule]]
name = "server"
program = "/nonexistent/server"
R
