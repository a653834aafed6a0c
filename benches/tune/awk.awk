# Fields, arrays, patterns, functions. Takes how many rounds it goes; without an end otherwise.
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2) }
BEGIN {
    rounds = ARGC > 1 ? ARGV[1] : -1
    while (rounds-- != 0) {
        $0 = "the quick brown fox jumps over the lazy dog " fib(11)
        for (i = 1; i <= NF; i++) {
            word = toupper(substr($i, 1, 1)) substr($i, 2)
            if (word ~ /^[A-Z][aeiou]?/) seen[word]++
            gsub(/[aeiou]/, "&&", word)
            at = match(word, /o+/) ? RSTART : length(word)
            seen[substr(word, at)] = index($0, $i) + split($0, parts, /[ o]/)
        }
        for (word in seen) if (length(word) > 6) delete seen[word]
        n = asorti(seen, sorted)
        printf "%s %05d %s\n", substr($0, 5, 9), n, sorted[1]
        fflush()
    }
}
