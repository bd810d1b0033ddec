# Packages, inheritance, overloaded operators, accessors made by closures, destructors.
use strict;
use warnings;

package Shape {
    sub new { my ($class, %own) = @_; return bless {%own}, $class }
    sub describe { my ($self) = @_; return sprintf '%s with area %.2f', $self->name, $self->area }
    sub DESTROY { my ($self) = @_; print 'gone: ', $self->name, "\n" if $self->{temporary} }
    for my $field (qw(name)) {
        no strict 'refs';
        *$field = sub { $_[0]{$field} };
    }
}

package Circle { our @ISA = 'Shape'; sub area { 3.14159265 * $_[0]{radius} ** 2 } }
package Square { our @ISA = 'Shape'; sub area { $_[0]{side} ** 2 } }

package Vector {
    use overload
        '+' => sub { Vector->new(map { $_[0][$_] + $_[1][$_] } 0 .. $#{ $_[0] }) },
        '*' => sub { my ($v, $k) = @_; Vector->new(map { $_ * $k } @$v) },
        '==' => sub { "$_[0]" eq "$_[1]" },
        '""' => sub { '(' . join(', ', @{ $_[0] }) . ')' };
    sub new { my ($class, @parts) = @_; return bless [@parts], $class }
}

package main;

for my $shape (Circle->new(name => 'circle', radius => 2), Square->new(name => 'square', side => 3)) {
    print $shape->describe, "\n";
}
{ Square->new(name => 'scratch', side => 1, temporary => 1) }
my $sum = Vector->new(1, 2) + Vector->new(3, 4) * 2;
print "sum: $sum ", $sum == Vector->new(7, 10) ? 'as expected' : 'wrong', "\n";
print 'can area: ', join(' ', map { $_->can('area') ? 'yes' : 'no' } qw(Circle Shape)), "\n";
my $failed = eval { Shape->new(name => 'none')->describe; 1 };
print 'failed: ', $@ =~ /locate object method "area"/ ? 'no area' : 'otherwise', "\n" unless $failed;
