# Integer arithmetic: a sieve, greatest common divisors, Fibonacci numbers, Collatz, base conversion.
use strict;
use warnings;

sub sieve {
    my ($limit) = @_;
    my (@composite, @primes);
    for my $n (2 .. $limit - 1) {
        next if $composite[$n];
        push @primes, $n;
        for (my $multiple = $n * $n; $multiple < $limit; $multiple += $n) { $composite[$multiple] = 1 }
    }
    return @primes;
}

sub gcd { my ($x, $y) = @_; return $y ? gcd($y, $x % $y) : $x }

sub fibonacci { my ($x, $y) = (0, 1); ($x, $y) = ($y, $x + $y) for 1 .. $_[0]; return $x }

sub collatz { my @terms = @_; push @terms, $terms[-1] % 2 ? 3 * $terms[-1] + 1 : $terms[-1] / 2 while $terms[-1] != 1; return @terms }

my @digits = (0 .. 9, 'a' .. 'z');
sub to_base { my ($n, $base) = @_; return $n < $base ? $digits[$n] : to_base(int($n / $base), $base) . $digits[$n % $base] }

sub from_base {
    my ($text, $base) = @_;
    my %value = map { $digits[$_] => $_ } 0 .. $#digits;
    my $number = 0;
    $number = $number * $base + $value{$_} for split //, $text;
    return $number;
}

my @primes = sieve(10000);
print 'primes below 10000: ', scalar @primes, ", first: @primes[0 .. 9], last: $primes[-1]\n";
print 'gcd: ', gcd(1071, 462), "\n";
print 'fib(90): ', fibonacci(90), "\n";
my @terms = collatz(27);
print 'collatz 27: ', scalar @terms, " terms, ending @terms[-4 .. -1]\n";
print join(' ', 'bases:', to_base(255, 2), to_base(255, 16), to_base(1295, 36), hex 'ff', oct '0b1010', from_base('zz', 36)), "\n";
{
    use integer;
    print join(' ', 'bits:', 0xF0 >> 4, 5 & 3, 5 | 3, 5 ^ 3, ~5, 1 << 62), "\n";
    print join(' ', 'signs:', -7 / 2, -7 % 2, 9223372036854775807 + 1), "\n";
}
