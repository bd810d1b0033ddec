// Sealed interfaces, records, switch expressions: evaluating, printing and differentiating formulas.
sealed interface Expr {
    record Num(double value) implements Expr {
        @Override
        public String toString() {
            return value == Math.rint(value) ? Long.toString((long) value) : Double.toString(value);
        }
    }

    record Var() implements Expr {
        @Override
        public String toString() {
            return "x";
        }
    }

    record Bin(char op, Expr left, Expr right) implements Expr {
        @Override
        public String toString() {
            return "(" + left + " " + op + " " + right + ")";
        }
    }

    default double at(double x) {
        if (this instanceof Bin bin) {
            double l = bin.left.at(x);
            double r = bin.right.at(x);
            return switch (bin.op) {
                case '+' -> l + r;
                case '-' -> l - r;
                case '*' -> l * r;
                default -> throw new IllegalStateException("operator " + bin.op);
            };
        }
        return this instanceof Num num ? num.value : x;
    }

    default Expr derivative() {
        if (this instanceof Bin bin) {
            Expr dl = bin.left.derivative();
            Expr dr = bin.right.derivative();
            return bin.op == '*'
                ? new Bin('+', new Bin('*', dl, bin.right), new Bin('*', bin.left, dr)).simplified()
                : new Bin(bin.op, dl, dr).simplified();
        }
        return new Num(this instanceof Var ? 1 : 0);
    }

    default Expr simplified() {
        if (!(this instanceof Bin bin)) {
            return this;
        }
        Expr l = bin.left.simplified();
        Expr r = bin.right.simplified();
        Expr zero = new Num(0);
        Expr one = new Num(1);
        if (l instanceof Num && r instanceof Num) {
            return new Num(new Bin(bin.op, l, r).at(0));
        }
        return switch (bin.op) {
            case '*' -> l.equals(zero) || r.equals(zero) ? zero : l.equals(one) ? r : r.equals(one) ? l : new Bin('*', l, r);
            case '+' -> l.equals(zero) ? r : r.equals(zero) ? l : new Bin('+', l, r);
            default -> r.equals(zero) ? l : new Bin(bin.op, l, r);
        };
    }
}

public class SealedExpressions {
    public static void main(String[] args) {
        Expr x = new Expr.Var();
        Expr one = new Expr.Num(1);
        Expr line = new Expr.Bin('-', new Expr.Bin('*', new Expr.Num(3), x), new Expr.Num(2.5));
        Expr product = new Expr.Bin('*', new Expr.Bin('+', x, one), new Expr.Bin('-', x, one));
        for (Expr expr : new Expr[] {new Expr.Num(14), line, product}) {
            System.out.println(expr + " at 5 = " + expr.at(5));
            System.out.println("  derivative " + expr.derivative() + " at 5 = " + expr.derivative().at(5));
        }
    }
}
