# Word frequencies of standard input.
use strict;
use warnings;

my (%counts, $total);
while (<>) {
    $total++, $counts{lc $1}++ while /([a-z]+)/gi;
}
printf "%d words, %d distinct\n", $total, scalar keys %counts;
my @words = sort { $counts{$b} <=> $counts{$a} || $a cmp $b } keys %counts;
printf "%-6s %d %s\n", $_, $counts{$_}, '#' x $counts{$_} for @words[0 .. 4];
