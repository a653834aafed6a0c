# not run: fettle ui: it serves until Ctrl-C; crates/app/cli/tests/ui.rs drives it in a browser
# not run: fettle tune: the same
