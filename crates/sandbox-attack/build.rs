//! Lists the hostile programs in `attacks/` and embeds them in the binary.

use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../attacks").canonicalize()?;
    let mut text = "[\n".to_owned();
    for group in sorted(&root)? {
        println!("cargo::rerun-if-changed={}", group.display());
        for file in sorted(&group)? {
            let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            text.push_str(&format!(
                "    ({:?}, {:?}, include_str!({:?})),\n",
                name(&group),
                name(&file),
                file.to_string_lossy()
            ));
        }
    }
    text.push_str("]\n");
    println!("cargo::rerun-if-changed={}", root.display());
    let out = std::env::var_os("OUT_DIR").unwrap_or_default();
    std::fs::write(Path::new(&out).join("attacks.rs"), text)
}

fn sorted(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    found.sort();
    Ok(found)
}
