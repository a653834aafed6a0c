# needs: root runsc strace
# instead: bench probes => bench probes --rounds 2
# status 1: fettle bench ipc --on
# instead: fettle bench ipc => fettle bench ipc --rounds 1 --size 4k,64k --total 256k --touched 1m
# any status: fettle bench probes
