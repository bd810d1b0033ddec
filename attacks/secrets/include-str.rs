// tries: has the compiler put a file of the host's into the program
// seen-in: general
// walls: mount
// compiler: yes
// expect: compile_error
fn main() {
    println!("{}", include_str!("@SECRET@"));
}
