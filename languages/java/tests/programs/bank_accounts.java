// Several top-level classes: inheritance, abstract methods, checked exceptions.
import java.util.List;

class InsufficientFundsException extends Exception {
    private static final long serialVersionUID = 1L;

    InsufficientFundsException(long missing) {
        super("missing " + missing + " cents");
    }
}

abstract class Account {
    private final String owner;
    protected long cents;

    Account(String owner, long cents) {
        this.owner = owner;
        this.cents = cents;
    }

    abstract long limit();

    void withdraw(long amount) throws InsufficientFundsException {
        if (cents - amount < -limit()) {
            throw new InsufficientFundsException(amount - cents - limit());
        }
        cents -= amount;
    }

    @Override
    public String toString() {
        return String.format("%s[%s %d.%02d]", getClass().getSimpleName(), owner, cents / 100, Math.abs(cents % 100));
    }
}

class Savings extends Account {
    Savings(String owner, long cents) {
        super(owner, cents);
    }

    @Override
    long limit() {
        return 0;
    }
}

class Current extends Account {
    Current(String owner, long cents) {
        super(owner, cents);
    }

    @Override
    long limit() {
        return 50_000;
    }
}

public class BankAccounts {
    public static void main(String[] args) {
        List<Account> accounts = List.of(new Savings("Ada", 100_050), new Current("Bob", 20_000));
        for (long amount : new long[] {30_000, 80_000}) {
            for (Account account : accounts) {
                try {
                    account.withdraw(amount);
                    System.out.println(account);
                } catch (InsufficientFundsException e) {
                    System.out.println(account + " " + e.getMessage());
                }
            }
        }
    }
}
