# not run: fettle merge: it takes traces of two machines; crates/app/cli/tests/merge.rs makes them
# not run: fettle requests: the same
