// tries: spins in every thread for ever
// seen-in: general
// walls: limits
// limits: wall_time=500ms
// expect: timeout
// alone: yes
fn main() {
    for _ in 0..15 {
        std::thread::spawn(|| loop {
            std::hint::spin_loop();
        });
    }
    loop {
        std::hint::spin_loop();
    }
}
