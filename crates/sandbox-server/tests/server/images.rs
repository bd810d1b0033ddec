//! Requests that run in an image.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use sandbox_images::{ImageCaps, ImageName, ImageStore, UnpackTask, unpack};
use serde_json::json;

use crate::Server;

/// An image with nothing but a shell.
fn import(data: &Path) {
    let shell = Path::new("/bin/bash").canonicalize().unwrap();
    let libraries = Command::new("ldd").arg(&shell).output().unwrap();
    let libraries = String::from_utf8(libraries.stdout).unwrap();
    let mut image = tar::Builder::new(tempfile::tempfile().unwrap());
    for (path, inside) in [(shell.to_str().unwrap(), "bin/bash"), (shell.to_str().unwrap(), "bin/sh")]
        .into_iter()
        .chain(libraries.split_whitespace().filter(|word| word.starts_with('/')).map(|path| (path, &path[1..])))
    {
        image.append_file(inside, &mut File::open(path).unwrap()).unwrap();
    }
    let readlink = b"#!/bin/sh\necho /bin/bash\n";
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o755);
    header.set_size(readlink.len() as u64);
    image.append_data(&mut header, "bin/readlink", readlink.as_slice()).unwrap();
    let image = image.into_inner().unwrap();
    let import = ImageStore::new(data).import().unwrap();
    let caps = ImageCaps { entries: 100, bytes: 100 << 20 };
    let unpacked = unpack(&image, import.dir(), UnpackTask { caps }).unwrap();
    import.publish(unpacked, Some(&ImageName::new("shell").unwrap()), "").unwrap();
}

#[test]
fn a_request_can_run_in_an_image() {
    let data = tempfile::tempdir().unwrap();
    std::fs::set_permissions(data.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    import(&data.path().join("data"));
    let server = Server::start_in(data, &[], &[]);
    let request = json!({"language": "bash", "image": "shell", "code": "echo /*; echo $BASH_VERSION"});
    for _ in 0..2 {
        let (status, answer) = server.post(&request);
        assert_eq!((status, &answer["verdict"]), (200, &json!("ok")), "{answer:#}");
        let stdout = answer["stdout"].as_str().unwrap();
        assert!(stdout.starts_with("/bin /dev /etc") && !stdout.contains("/srv"), "{answer:#}");
    }
    let (status, answer) = server.post(&json!({"language": "python", "image": "shell", "code": "1"}));
    assert_eq!(status, 422, "{answer:#}");
    assert!(answer["detail"].as_str().unwrap().contains("was not found in the image 'shell'"), "{answer:#}");
    let (status, answer) = server.post(&json!({"language": "bash", "image": "nothing", "code": "1"}));
    assert_eq!((status, &answer["field"]), (422, &json!("image")), "{answer:#}");
    assert!(answer["detail"].as_str().unwrap().contains("no image 'nothing'"), "{answer:#}");
}

#[test]
fn an_image_can_be_imported_while_the_server_runs() {
    // By root, where the server has become another user.
    let server = Server::start(&[]);
    import(&server.data.as_ref().unwrap().path().join("data"));
    let (status, answer) = server.post(&json!({"language": "bash", "image": "shell", "code": "echo /*"}));
    assert_eq!((status, &answer["verdict"]), (200, &json!("ok")), "{answer:#}");
}
