# Arbitrary precision with Math::BigInt: factorials, powers of two, Fibonacci numbers.
use strict;
use warnings;
use List::Util qw(sum);
use Math::BigInt;

my $factorial = Math::BigInt->new(100)->bfac;
my $digits = "$factorial";
printf "25! = %s\n", Math::BigInt->new(25)->bfac;
printf "100! has %d digits, sum %d\n", length $digits, sum split //, $digits;
printf "digit sum of 2^1000: %d\n", sum split //, Math::BigInt->new(2)->bpow(1000)->bstr;

my ($a, $b) = (Math::BigInt->new(0), Math::BigInt->new(1));
for my $n (1 .. 300) {
    ($a, $b) = ($b, $a + $b);
    print "fib($n) = $a\n" if $n == 90 || $n == 300;
}
