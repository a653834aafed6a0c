# Grammars, exceptions, closures, big numbers, gather and take.
grammar Sum { rule TOP { <term>+ % '+' }; token term { \d+ } }
my class Total { method TOP($/) { make [+] $<term>.map(*.Int) } }
say Sum.parse('1 + 22 + 333', actions => Total).made;
my @primes = (2..600).grep(*.is-prime);
say @primes.elems, ' ', @primes.tail;
say (gather for 1..* { last if $_ > 40; take $_ ** 3 if $_ %% 7 }).join(',');
my $caught = 0;
for ^300 { die "odd" if $_ % 2; CATCH { default { $caught++; } } }
say $caught, ' ', [*] 1..60;
say 'the quick brown fox'.comb(/\w+/).map({ .tc ~ .chars }).join(' ');
say %(abc => 1, de => 2).sort(*.key).map({ "{.key}={.value}" }).join(';');
exit 3;
