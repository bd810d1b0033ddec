# Processes and files: a fork with a pipe, a command's output, a temporary file, sorted lines, exit codes.
use strict;
use warnings;
use File::Temp qw(tempfile);

pipe my $reader, my $writer or die "pipe: $!";
my $child = fork // die "fork: $!";
if (!$child) {
    close $reader;
    print $writer "$_\n" for map { $_ ** 2 } 1 .. 5;
    close $writer;
    exit 7;
}
close $writer;
my @squares = <$reader>;
chomp @squares;
waitpid $child, 0;
print "child: @squares, exit code ", $? >> 8, "\n";

my ($file, $name) = tempfile(UNLINK => 1);
print $file "$_\n" for qw(pear apple fig);
close $file;
open my $sorted, '-|', 'sort', $name or die "sort: $!";
print 'sorted: ', join(' ', map { chomp; $_ } <$sorted>), "\n";
close $sorted;
my $counted = `wc -l < $name`;
print 'lines: ', $counted + 0, "\n";
print 'false: ', system('false') >> 8, ', missing: ', -e '/no/such/file' ? 'there' : 'not there', "\n";
local $SIG{ALRM} = sub { die "alarm\n" };
my $ended = eval { alarm 1; 1 while 1; 1 };
print "interrupted by $@";
