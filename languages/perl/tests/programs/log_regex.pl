# Regular expressions: named groups, substitution with code, global matches, look-ahead, a report.
use strict;
use warnings;

my (%status, %bytes);
while (<DATA>) {
    next unless m{^(?<host>\S+) \S+ \S+ \[(?<day>\d+)/(?<month>\w+)/\d+:(?<hour>\d\d)[^]]*\] "(?<method>[A-Z]+) (?<path>\S+)[^"]*" (?<status>\d{3}) (?<bytes>\d+|-)};
    $status{ $+{status} }++;
    $bytes{ $+{host} } += $+{bytes} eq '-' ? 0 : $+{bytes};
    print "$+{hour}h $+{method} $+{path}\n" if $+{status} >= 400;
}
print "$_: $status{$_}\n" for sort keys %status;
print "$_ $bytes{$_}\n" for sort { $bytes{$b} <=> $bytes{$a} } keys %bytes;

my $text = 'width=80 height=24 depth=3';
my %sizes = $text =~ /(\w+)=(\d+)/g;
(my $doubled = $text) =~ s/(\d+)/$1 * 2/ge;
print join(', ', map { "$_ $sizes{$_}" } sort keys %sizes), " -> $doubled\n";
(my $money = '1234567.5') =~ s/(?<=\d)(?=(?:\d{3})+(?!\d))(?<!\.)/,/g;
print "$money ", join('|', split /\s*[,;]\s*/, 'a , b;c,d'), ' ', scalar(() = 'banana' =~ /a/g), "\n";
(my $title = 'the quick brown fox') =~ s/\b(\w)/\u$1/g;
print "$title ", join(' ', map { sprintf '%s', /^(?:[01]?\d|2[0-3]):[0-5]\d$/ ? 'time' : 'none' } '23:59', '24:00', '7:05'), "\n";
__DATA__
10.0.0.1 - - [12/Mar/2024:06:25:01 +0000] "GET /index.html HTTP/1.1" 200 512
10.0.0.2 - - [12/Mar/2024:06:26:40 +0000] "POST /login HTTP/1.1" 403 128
10.0.0.1 - - [12/Mar/2024:07:00:13 +0000] "GET /missing HTTP/1.1" 404 -
not a line of the log
10.0.0.3 - bob [12/Mar/2024:07:10:59 +0000] "GET /big.iso HTTP/1.1" 200 4096
