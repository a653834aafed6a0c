# any status: fettle smp check
# not run: fettle smp module: it needs headers of the running kernel; `cargo xtask smp` runs it in a guest
# not run: fettle smp lend: it takes processors away from Linux; `cargo xtask smp` runs it in a guest
# not run: fettle smp run: it needs lent processors; `cargo xtask smp` runs it in a guest
# not run: fettle smp status: it needs the module; `cargo xtask smp` runs it in a guest
# not run: fettle smp give-back: it needs lent processors; `cargo xtask smp` runs it in a guest
# not run: fettle smp allow: it needs the module; `cargo xtask smp` runs it in a guest
