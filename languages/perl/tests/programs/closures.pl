# Closures: counters, memoization, composition, iterators, dispatch tables, sorting by a computed key.
use strict;
use warnings;
use List::Util qw(first reduce sum);

sub counter { my $n = shift; return { up => sub { ++$n }, down => sub { --$n } } }
my $counter = counter(5);
$counter->{up}->() for 1 .. 3;
print 'counter: ', $counter->{down}->(), "\n";

my %memo;
my $fibonacci;
$fibonacci = sub { my $n = shift; return $memo{$n} //= $n < 2 ? $n : $fibonacci->($n - 1) + $fibonacci->($n - 2) };
print 'fibonacci: ', $fibonacci->(50), "\n";

sub compose { my @steps = @_; return sub { my $value = shift; $value = $_->($value) for @steps; return $value } }
print 'composed: ', compose(sub { $_[0] + 1 }, sub { $_[0] * 10 }, sub { "<$_[0]>" })->(4), "\n";

sub take { my ($n, $next) = @_; return map { $next->() } 1 .. $n }
sub squares { my $i = 0; return sub { $i++; return $i * $i } }
print 'squares: ', join(' ', take(6, squares())), "\n";

my %operate = ('+' => sub { $_[0] + $_[1] }, '*' => sub { $_[0] * $_[1] }, '-' => sub { $_[0] - $_[1] });
my @stack;
for my $token (split ' ', '3 4 + 2 * 7 -') {
    if (my $operation = $operate{$token}) {
        my $right = pop @stack;
        push @stack, $operation->(pop @stack, $right);
    } else {
        push @stack, $token;
    }
}
print "postfix: @stack\n";
print 'sorted: ', join(' ', map { $_->[1] } sort { $a->[0] <=> $b->[0] || $a->[1] cmp $b->[1] } map { [length, $_] } qw(pear fig apple kiwi)), "\n";
print 'first: ', (first { $_ > 10 } 3, 8, 13, 21), ', longest: ', (reduce { length $a >= length $b ? $a : $b } qw(a ccc bb)), ', sum: ', sum(1 .. 100), "\n";
