// tries: makes the compiler embed a host file in the program
// seen-in: general
// walls: mount
// compiler: yes
// expect: compile_error
fn main() {
    println!("{}", include_str!("@SECRET@"));
}
