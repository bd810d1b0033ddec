//! Compiles this crate's sources as the shared library that zygotes load, which unlike everything else has no
//! dependencies, not even the standard library. The crate embeds the result as a file.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let out = PathBuf::from(variable("OUT_DIR")).join("zygote.so");
    if variable("CARGO_CFG_TARGET_ARCH") != "x86_64" {
        // On other architectures interpreters start cold.
        return if std::fs::write(out, b"").is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let compiled = Command::new(variable("RUSTC"))
        .args([
            "--cfg=zygote_library",
            "--crate-name=zygote",
            "--crate-type=cdylib",
            "--edition=2024",
            "--target",
            &variable("TARGET"),
        ])
        .args(["-Copt-level=s", "-Cpanic=abort", "-Ctarget-feature=-crt-static", "-Cstrip=symbols"])
        .args(["-Clink-arg=-nostdlib", "-Clink-arg=-Wl,-z,now", "-Clink-arg=-Wl,--build-id=none"])
        .arg("-o")
        .arg(&out)
        .arg("src/lib.rs")
        .status();
    if compiled.is_ok_and(|status| status.success()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
