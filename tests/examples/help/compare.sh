# needs: root user-mode-linux runsc bubblewrap
# instead: --rounds 40 => --rounds 2 --turn 1ms
# instead: --load 0,1,2 => --load 0,1 --rounds 2 --turn 1ms
# instead: --on gvisor:ptrace -- sh => --on gvisor:ptrace --rounds 1 -- sh
# instead: --why null,read-4k => --why null,read-4k --rounds 2
# instead: --calls 15 => --calls 15 --rounds 1
# instead: --json => --rounds 2 --turn 1ms --json
# not run: fettle compare --on native --on uml --on gvisor:ptrace: takes minutes
