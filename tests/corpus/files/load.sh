# Functions, loops, arithmetic, here-documents, command substitution, pipes, traps, sub-shells.
fib() { if [ "$1" -lt 2 ]; then echo "$1"; else echo $(( $(fib $(($1 - 1))) + $(fib $(($1 - 2))) )); fi; }
fib 6
n=0; while [ $n -lt 3000 ]; do n=$((n + 1)); case $n in *7) s="$s$n,";; *99) s=;; esac; done; echo "${s#*,}"
trap 'echo caught' USR1; kill -USR1 $$
(trap 'echo left $?' EXIT; exit 3); echo $?
cat <<X | while read -r a b; do echo "$b-$a"; done
one two
three $(echo four | tr a-z A-Z)
X
for f in in.*; do set -- "$@" "${f%.txt}"; done; echo "$#" "$*"
seq 1 20 | sort -r | head -3
IFS=:; set -- a:b:c; echo $1; unset IFS
sleep 0.05 & wait $!; echo "$?"
