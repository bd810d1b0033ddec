//! `sandbox-run image`: container images that code can run in.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;

use sandbox_base::units::format_size;
use sandbox_base::{counted, reason};
use sandbox_executor::{Executor, Settings};
use sandbox_images::{ImageName, ListedImage, UNPACK_DIR, UnpackResult, pack};

use crate::args::ImageAction;
use crate::exit_code;
use crate::output::{print_error, say, unless_unread};
use crate::request::image_store;
use crate::run::Started;

/// Imports, lists or removes images.
pub(crate) fn image(action: ImageAction, executor: Option<Started>) -> u8 {
    match act(action, executor) {
        Ok(()) => 0,
        Err((error, code)) => {
            print_error(&error);
            code
        }
    }
}

/// A message, and the exit code.
type Failed = (String, u8);

fn usage(error: impl Into<Box<dyn std::error::Error>>) -> Failed {
    (error.into().to_string(), exit_code::USAGE)
}

fn act(action: ImageAction, executor: Option<Started>) -> Result<(), Failed> {
    let settings = Settings::read(|name| std::env::var(name).ok()).map_err(usage)?;
    let mut out = anstream::stdout().lock();
    let written = match action {
        ImageAction::Import { path, name } => {
            let executor = executor.ok_or_else(|| usage("cannot start the keeper"))?;
            let executor = executor.map_err(|failure| (failure.to_string(), exit_code::INTERNAL))?;
            let name = name.map(|name| ImageName::new(&name)).transpose().map_err(usage)?;
            let listed = import(&path, name.as_ref(), &executor, &settings)?;
            table(&[listed], &mut out)
        }
        ImageAction::List { json } => {
            let list = image_store(&settings).map_err(usage)?.list();
            if json {
                writeln!(out, "{}", serde_json::to_string_pretty(&list).map_err(usage)?)
            } else {
                if list.is_empty() {
                    say("no images; import one with sandbox-run image import FILE");
                }
                table(&list, &mut out)
            }
        }
        ImageAction::Rm { name } => {
            image_store(&settings).map_err(usage)?.remove(&name).map_err(usage)?;
            Ok(())
        }
    };
    unless_unread(written).map_err(|error| (reason(&error), exit_code::INTERNAL))
}

fn import(
    path: &Path,
    name: Option<&ImageName>,
    executor: &Executor,
    settings: &Settings,
) -> Result<ListedImage, Failed> {
    let refuse = |why: &str| usage(format!("cannot import '{}': {why}", path.display()));
    let store = image_store(settings).map_err(usage)?;
    let import = store.import().map_err(|error| (error.to_string(), exit_code::INTERNAL))?;
    let file = if path.is_dir() { pack(path, import.dir()) } else { File::open(path) };
    let file = file.map_err(|error| refuse(&reason(&error)))?;
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return Err(refuse("it is neither a file nor a directory"));
    }
    let own = std::env::current_exe().map_err(|error| (reason(&error), exit_code::INTERNAL))?;
    let unpacked = executor.unpack(&file, import.dir(), &own, settings).map_err(|failure| {
        if failure.request { refuse(&failure.why) } else { (failure.to_string(), exit_code::INTERNAL) }
    })?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let image = import.publish(unpacked, name, stem.trim_end_matches(".tar")).map_err(usage)?;
    let listed = store.list().into_iter().find(|listed| listed.about.digest == image.digest);
    listed.ok_or_else(|| ("the image was removed meanwhile".to_owned(), exit_code::INTERNAL))
}

fn table(list: &[ListedImage], out: &mut impl Write) -> std::io::Result<()> {
    for listed in list {
        let about = &listed.about;
        let digest = about.digest.strip_prefix("sha256:").unwrap_or(&about.digest);
        let skipped = match about.skipped {
            0 => String::new(),
            skipped => format!(" ({} dropped)", counted(skipped, "special file")),
        };
        let (digest, size) = (&digest[..12.min(digest.len())], format_size(about.size));
        let files = counted(about.entries, "file");
        writeln!(out, "{digest}  {size:>10}  {files:>12}  {}{skipped}", listed.names.join(", "))?;
    }
    Ok(())
}

/// Unpacks the image on standard input. This is what runs in a cell.
pub(crate) fn unpack(job: &str) -> u8 {
    let answer: UnpackResult = (|| {
        let job = serde_json::from_str(job).map_err(|error| error.to_string())?;
        let file = std::io::stdin().as_fd().try_clone_to_owned().map_err(|error| reason(&error))?;
        sandbox_images::unpack(&File::from(file), Path::new(UNPACK_DIR), job)
    })();
    let text = serde_json::to_vec(&answer).unwrap_or_default();
    if std::io::stdout().write_all(&text).is_ok() { 0 } else { exit_code::INTERNAL }
}
