# Simulation: Game of Life on a torus, matrix powers, seeded random generators.
use strict;
use warnings;

my $size = 6;
my @cells = map { [split //] } qw(010000 001000 111000 000000 000000 000000);

sub generation {
    my @next;
    for my $row (0 .. $size - 1) {
        for my $column (0 .. $size - 1) {
            my $around = -$cells[$row][$column];
            for my $dr (-1, 0, 1) {
                $around += $cells[($row + $dr) % $size][($column + $_) % $size] for -1, 0, 1;
            }
            $next[$row][$column] = $around == 3 || $around == 2 && $cells[$row][$column] ? 1 : 0;
        }
    }
    @cells = @next;
}

sub text { join "\n", map { (my $line = join '', @$_) =~ tr/01/.#/; $line } @cells }

sub multiply {
    my ($x, $y) = @_;
    use integer;
    return [map { my $i = $_; [map { $x->[$i][0] * $y->[0][$_] + $x->[$i][1] * $y->[1][$_] } 0, 1] } 0, 1];
}

sub fibonacci {
    my ($n) = @_;
    my ($result, $base) = ([[1, 0], [0, 1]], [[1, 1], [1, 0]]);
    for (; $n > 0; $n >>= 1) {
        $result = multiply($result, $base) if $n & 1;
        $base = multiply($base, $base);
    }
    return $result->[0][1];
}

my $start = text();
for my $turn (1 .. 24) {
    generation();
    print text(), "\n" if $turn == 4;
}
print "glider home after 24\n" if text() eq $start;
print "fib(90): ", fibonacci(90), "\n";

my $seed = 1;
my $next = sub { $seed = $seed * 16807 % 2147483647 };
$next->() for 1 .. 10000;
print "10000th: $seed\n";
my @rolls = (0) x 6;
$rolls[$next->() % 6]++ for 1 .. 6000;
print 'fair die: ', (grep { $_ <= 850 || $_ >= 1150 } @rolls) ? "no\n" : "yes\n";
