# needs: root runsc
# status 1: fettle bench ipc --on
# instead: fettle bench ipc => fettle bench ipc --rounds 1 --size 4k,64k --total 256k --touched 1m
