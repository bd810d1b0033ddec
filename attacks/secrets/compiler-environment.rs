// tries: makes the compiler reveal its environment, which could be the suite's own
// seen-in: general
// walls: keeper
fn main() {
    println!("{:?} {:?}", option_env!("SANDBOX_ATTACK_SECRET"), option_env!("HOME"));
    for name in ["SANDBOX_ATTACK_SECRET", "SSH_AUTH_SOCK", "AWS_SECRET_ACCESS_KEY"] {
        println!("{:?}", std::env::var(name));
    }
    println!("attempted");
}
