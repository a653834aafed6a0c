# not run: fettle collect: it takes in traces until Ctrl-C; crates/app/cli/tests/collect.rs runs it
