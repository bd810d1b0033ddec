//! A small image: a shell, and scripts.

use std::fs::File;
use std::path::Path;
use std::process::Command;

/// An archive with the shell of this host, its libraries, and these scripts in `/bin`, by name.
#[must_use]
pub fn shell_image(scripts: &[(&str, &str)]) -> File {
    let shell = Path::new("/bin/bash").canonicalize().expect("a shell");
    let shell = shell.to_str().expect("text");
    let libraries = Command::new("ldd").arg(shell).output().expect("ldd");
    let libraries = String::from_utf8(libraries.stdout).expect("text");
    let libraries = libraries.split_whitespace().filter(|word| word.starts_with('/')).map(|path| (path, &path[1..]));
    let mut image = tar::Builder::new(tempfile::tempfile().expect("a file"));
    for (path, inside) in [(shell, "bin/bash"), (shell, "bin/sh")].into_iter().chain(libraries) {
        image.append_file(inside, &mut File::open(path).expect("a library")).expect("append");
    }
    for (name, script) in scripts {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o755);
        header.set_size(script.len() as u64);
        image.append_data(&mut header, format!("bin/{name}"), script.as_bytes()).expect("append");
    }
    image.into_inner().expect("the archive")
}
