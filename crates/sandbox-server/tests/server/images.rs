//! Requests that run in an image.

use std::path::Path;

use sandbox_images::{ImageCaps, ImageName, ImageStore, UnpackTask, unpack};
use sandbox_testing::shell_image;
use serde_json::json;

use crate::Server;

/// An image with nothing but a shell.
fn import(data: &Path) {
    let image = shell_image(&[("readlink", "#!/bin/sh\necho /bin/bash\n")]);
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
