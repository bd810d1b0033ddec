# Lists and recursion: quicksort, merge sort, binary search, a stack and a queue, a sparse hash.
use strict;
use warnings;

sub quick_sort {
    my ($pivot, @rest) = @_ or return;
    return (quick_sort(grep { $_ < $pivot } @rest), $pivot, quick_sort(grep { $_ >= $pivot } @rest));
}

sub merge_sort {
    return @_ if @_ < 2;
    my @right = merge_sort(splice @_, @_ / 2);
    my @left = merge_sort(@_);
    my @merged;
    push @merged, $left[0] <= $right[0] ? shift @left : shift @right while @left && @right;
    return (@merged, @left, @right);
}

sub binary_search {
    my ($wanted, @sorted) = @_;
    my ($low, $high) = (0, $#sorted);
    while ($low <= $high) {
        my $middle = int(($low + $high) / 2);
        return $middle if $sorted[$middle] == $wanted;
        if ($sorted[$middle] < $wanted) { $low = $middle + 1 } else { $high = $middle - 1 }
    }
    return;
}

my @numbers = (42, 7, 19, 3, 88, 7, 0, -5, 61, 23);
my @sorted = quick_sort(@numbers);
print "quick: @sorted\n";
print 'merge: ', join(' ', merge_sort(@numbers)), "\n";
print '61 at ', binary_search(61, @sorted), ', 62 ', binary_search(62, @sorted) // 'missing', "\n";

my @stack = ('a', 'b');
push @stack, 'c';
my $top = pop @stack;
print "popped $top, left @stack\n";
my @queue = qw(x y z);
print "first $queue[0], then @queue[1 .. 2], reversed ", join(' ', reverse @queue), "\n";

my %sparse = (2 => 'two', 5 => 'five');
my @keys = sort keys %sparse;
print "sparse: @keys -> @sparse{@keys}, ", scalar(keys %sparse), " items\n";
