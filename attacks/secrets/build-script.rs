// tries: reads a secret of the host in a build script, before the program runs
// seen-in: general
// walls: mount, compiler
// compiler: yes
// --- Cargo.toml
[package]
name = "innocent"
version = "0.1.0"
edition = "2021"
// --- build.rs
fn main() {
    let stolen = std::fs::read_to_string("@SECRET@").unwrap_or_default();
    println!("cargo:rustc-env=STOLEN={}", stolen.trim());
    let environment: Vec<String> = std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
    println!("cargo:rustc-env=ENVIRONMENT={}", environment.join(" ").replace('\n', " "));
}
// --- src/main.rs
fn main() {
    println!("{} {}", env!("STOLEN"), env!("ENVIRONMENT"));
    println!("attempted");
}
