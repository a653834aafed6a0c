# any status: fettle kernel check
# not run: fettle kernel count: it changes the running kernel; `cargo xtask kernel-live` runs it in a guest
# not run: fettle kernel tune: it changes the running kernel; `cargo xtask kernel-live` runs it in a guest
# not run: fettle kernel status: it needs the module; `cargo xtask kernel-live` runs it in a guest
# not run: fettle kernel undo: it needs the module; `cargo xtask kernel-live` runs it in a guest
