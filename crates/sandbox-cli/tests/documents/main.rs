//! The documents are true: their commands are run here, and must print what the documents show.
//!
//! The blocks marked `console` are one session for each document, which begins in an empty directory with nothing kept
//! from before. Blocks marked `sh` are for what cannot be run here, since it installs or builds the product:
//! `scripts/follow-readme` runs those of the README. With `SANDBOX_BLESS` set, what the commands print is written into
//! the documents instead: where it differs, or with `all` everywhere, for fresh figures.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod links;
mod requirements;
mod session;
mod transcript;

use sandbox_testing::{needs, repository};
use session::Session;

fn follow(document: &str) {
    if !needs::root() {
        return;
    }
    let path = repository().join(document);
    let text = std::fs::read_to_string(&path).unwrap();
    let examples = transcript::examples(&text);
    assert!(!examples.is_empty(), "{document} shows nothing");
    let session = Session::start(&examples);
    let bless = std::env::var("SANDBOX_BLESS").ok();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut wrong = vec![];
    let printed: Vec<String> = examples.iter().map(|example| session.run(&example.command)).collect();
    // From the last to the first, so that the numbers of lines stay what they are.
    for (example, printed) in examples.iter().zip(&printed).rev() {
        let expected = lines[example.output.clone()].join("\n");
        let same = transcript::same(&expected, printed);
        if !same && bless.is_none() {
            let (line, command) = (example.output.start, &example.command);
            wrong.push(format!("{document}:{line}: $ {command}\n--- shown\n{expected}\n--- printed\n{printed}\n"));
        }
        let fresh = bless.as_deref() == Some("all") && !expected.contains(transcript::ANYTHING);
        if bless.is_some() && (!same || fresh) {
            let printed = transcript::settled(printed).into_iter().map(str::to_owned);
            lines.splice(example.output.clone(), printed);
        }
    }
    if bless.is_some() {
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    }
    wrong.reverse();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_readme_is_true() {
    follow("README.md");
}

#[test]
fn the_guide_is_true() {
    follow("docs/SANDBOX_RUN.md");
}

#[test]
fn what_is_said_of_languages_is_true() {
    follow("docs/LANGUAGES.md");
}

#[test]
fn what_is_said_of_networks_is_true() {
    follow("docs/NETWORK.md");
}

#[test]
fn what_is_said_of_images_is_true() {
    follow("docs/IMAGES.md");
}

#[test]
fn what_is_said_of_the_server_is_true() {
    follow("docs/SERVER.md");
}
