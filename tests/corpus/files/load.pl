use strict; use warnings;
# Regular expressions, hashes, sorting, closures, die through nested eval, sprintf, pack.
local $/; open my $in, '<', 'in.txt' or die; my $text = <$in>;
my %count; $count{lc $1}++ while $text =~ /\b([a-z]{3,})\b/gi;
my @top = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
print "$_ $count{$_}\n" for @top[0 .. 9];
(my $other = $text) =~ s/(\w+) (\w+)/$2 $1/g;
print length($other), ' ', unpack('%32C*', $other), "\n";
sub fib { my $n = shift; $n < 2 ? $n : fib($n - 1) + fib($n - 2) }
print fib(20), "\n";
for my $n (1 .. 300) {
    my $got = eval { eval { die { n => $n } if $n % 3; $n } // die $@ };
    print ref $@ ? $@->{n} : $got, $n % 20 ? ' ' : "\n";
}
my @grid = map { my $x = $_; [ map { $x * $_ % 17 } 1 .. 40 ] } 1 .. 40;
print join(',', map { sprintf '%03d', eval { my $s = 0; $s += $_ for @$_; $s } } @grid), "\n";
local $SIG{ALRM} = sub { print "alarm\n" }; kill ALRM => $$;
print scalar reverse(join '', map { chr(97 + $_ % 26) } 1 .. 60), "\n";
