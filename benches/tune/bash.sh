# Functions, arrays, patterns. Takes how many rounds it goes; without an end otherwise.
declare -A seen
rounds=${1:--1}
fib() { local n=$1; if ((n < 2)); then REPLY=1; else fib $((n - 1)); local a=$REPLY
  fib $((n - 2)); REPLY=$((a + REPLY)); fi; }
while ((rounds-- != 0)); do
  fib 9
  text="the quick brown fox jumps over the lazy dog $REPLY"
  for word in $text; do
    case $word in (q*|*x) seen[$word]=$((${seen[$word]:-0} + 1)) ;; (*) w=${word/o/0}; w=${w^^} ;; esac
    [[ $w =~ ^[A-Z]+$ ]] && n=$((n + ${#w}))
  done
  printf -v line '%s %05d' "${text:4:9}" "$REPLY"
  echo "$line"
done >/dev/null
