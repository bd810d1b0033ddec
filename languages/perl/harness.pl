# Runs a function on cases: {{ function }}. Variables: function, cases (a list of {"args": [...], "expected": ...}).
# Numbers and strings that are written alike are alike.
use utf8;
binmode STDOUT, ':utf8';
our $harness_token = delete $ENV{TEMPLATE_TOKEN};

{{ code }}

;
sub harness_json {
    my ($value) = @_;
    return 'null' unless defined $value;
    return '[' . join(',', map { harness_json($_) } @$value) . ']' if ref $value eq 'ARRAY';
    return '{' . join(',', map { harness_json("$_") . ':' . harness_json($value->{$_}) } sort keys %$value) . '}'
        if ref $value eq 'HASH';
    return $value if $value =~ /^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?\z/;
    $value =~ s/(["\\])/\\$1/g;
    $value =~ s/([\x00-\x1f])/sprintf '\\u%04x', ord $1/ge;
    return "\"$value\"";
}

{
    my ($failed, $number) = (0, 0);
    my $cases = {{ cases | literal }};
    local $| = 1;
    for my $case (@$cases) {
        my $actual = eval { {{ function }}(@{ $case->{args} }) };
        my $error = $@;
        chomp $error;
        my $passed = $error eq '' && harness_json($actual) eq harness_json($case->{expected});
        $failed++ unless $passed;
        printf qq({"case":%d,"passed":%s,"expected":%s,"actual":%s,"error":%s}\n), $number++,
            $passed ? 'true' : 'false', harness_json($case->{expected}), harness_json($actual),
            $error eq '' ? 'null' : harness_json("error: $error");
    }
    print STDERR "$failed of $number cases failed\n" if $failed;
    print "$harness_token\n";
    exit($failed ? 1 : 0);
}
