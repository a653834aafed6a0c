# Calls, regular expressions, hashes, sorting. Takes how many rounds it goes; without an end otherwise.
use strict;
use warnings;
$| = 1;
my $rounds = shift // -1;
my %seen;
sub fib { my $n = shift; return $n < 2 ? $n : fib($n - 1) + fib($n - 2) }
while ($rounds-- != 0) {
    my $text = "the quick brown fox jumps over the lazy dog " . fib(11);
    my @words = map { ucfirst } sort { length $a <=> length $b || $a cmp $b } $text =~ /(\w+)/g;
    for my $word (@words) {
        $seen{$word}++ if $word =~ /^[A-Z][aeiou]?/;
        (my $changed = $word) =~ tr/a-y/b-z/;
        $changed =~ s/(.)o/$1 . length $word/e;
        $seen{$changed} = join ",", reverse split //, $changed;
    }
    delete @seen{grep { length $_ > 6 } keys %seen};
    printf "%s %05d %s\n", substr($text, 4, 9), scalar keys %seen, join "", map { pack "A8", $_ } @words[0, 1];
}
