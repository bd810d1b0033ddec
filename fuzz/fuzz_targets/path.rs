//! An accepted path has no `..`, is not absolute, and has exactly one spelling.
#![no_main]

use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use sandbox_base::RelativePath;

fuzz_target!(|text: &str| {
    match RelativePath::new(text) {
        Ok(path) => {
            assert_eq!(path.as_str(), text);
            assert!(!text.is_empty() && text.len() <= 1024 && !text.contains('\0'));
            let components: Vec<_> = Path::new(text).components().collect();
            assert!(components.iter().all(|part| matches!(part, Component::Normal(_))));
            let spelled: Vec<_> = components.iter().filter_map(|part| part.as_os_str().to_str()).collect();
            assert_eq!(spelled.join("/"), text, "one spelling");
            assert!(components.len() <= 32 && spelled.iter().all(|part| part.len() <= 255));
            assert!(Path::new("/base").join(text).starts_with("/base"));
            let parents: Vec<_> = path.parents().collect();
            assert_eq!(parents.len(), components.len() - 1);
            assert!(parents.iter().all(|parent| RelativePath::new(*parent).is_ok()));
        }
        Err(error) => {
            let message = error.to_string();
            assert!(!message.contains(char::is_control) && message.len() < 1200, "{message:?}");
        }
    }
});
