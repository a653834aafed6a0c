# Fields, arrays, regular expressions, recursion, printf.
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2) }
{ for (i = 1; i <= NF; i++) { w = tolower($i); gsub(/[^a-z]/, "", w); if (w) count[w]++; total += length(w) } }
/(an|in).*(on|ul)/ { hits++ }
END {
  print NR, total, hits, fib(20)
  for (w in count) if (count[w] > best || (count[w] == best && w < name)) { best = count[w]; name = w }
  printf "%s %d %.6f\n", name, best, sin(total) * exp(1)
}
