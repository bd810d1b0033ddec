# Search and dynamic programming: breadth-first maze with the path drawn, edit distance, coins, queens.
use strict;
use warnings;
use List::Util qw(min);

my @maze = ('S.#.....', '..#.###.', '#.#...#.', '#.###.#.', '#.....#E');

sub solve_maze {
    my ($height, $width) = (scalar @maze, length $maze[0]);
    my @queue = ([0, 0]);
    my %from = ('0 0' => undef);
    my $end;
    while (my $at = shift @queue) {
        my ($row, $column) = @$at;
        if (substr($maze[$row], $column, 1) eq 'E') { $end = "@$at"; last }
        for my $move ([1, 0], [-1, 0], [0, 1], [0, -1]) {
            my ($r, $c) = ($row + $move->[0], $column + $move->[1]);
            next if $r < 0 || $r >= $height || $c < 0 || $c >= $width;
            next if substr($maze[$r], $c, 1) eq '#' || exists $from{"$r $c"};
            $from{"$r $c"} = "@$at";
            push @queue, [$r, $c];
        }
    }
    my $steps = 0;
    for (my $at = $end; defined $from{$at}; $at = $from{$at}) {
        my ($row, $column) = split ' ', $at;
        substr($maze[$row], $column, 1) = 'o' if $at ne $end;
        $steps++;
    }
    print "$_\n" for @maze, "steps: $steps";
}

sub edit_distance {
    my ($from, $to) = @_;
    my @row = (0 .. length $to);
    for my $i (1 .. length $from) {
        my @next = ($i);
        for my $j (1 .. length $to) {
            my $cost = substr($from, $i - 1, 1) eq substr($to, $j - 1, 1) ? 0 : 1;
            $next[$j] = min($row[$j] + 1, $next[$j - 1] + 1, $row[$j - 1] + $cost);
        }
        @row = @next;
    }
    print "$from -> $to: $row[-1]\n";
}

sub count_change {
    my ($total, @coins) = @_;
    my @ways = (1, (0) x $total);
    for my $coin (@coins) {
        $ways[$_] += $ways[$_ - $coin] for $coin .. $total;
    }
    return $ways[$total];
}

sub queens {
    my ($size, $columns, $left, $right) = @_;
    my $all = (1 << $size) - 1;
    return 1 if $columns == $all;
    my $count = 0;
    for (my $open = ~($columns | $left | $right) & $all; $open; $open &= $open - 1) {
        my $bit = $open & -$open;
        $count += queens($size, $columns | $bit, ($left | $bit) << 1, ($right | $bit) >> 1);
    }
    return $count;
}

solve_maze();
edit_distance('kitten', 'sitting');
edit_distance('intention', 'execution');
print 'change: ', count_change(200, 1, 2, 5, 10, 20, 50, 100, 200), "\n";
print 'queens: ', queens(6, 0, 0, 0), "\n";
