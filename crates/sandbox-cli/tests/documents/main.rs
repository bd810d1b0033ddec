//! Runs the commands in the documents, which must print what the documents show.
//!
//! The blocks marked `console` are one session for each document, which begins in an empty directory without cached
//! data. Blocks marked `sh` cannot be run here, because they install or build the product: `scripts/follow-readme` runs
//! those of the README. With `SANDBOX_BLESS` set, the output of the commands is written into the documents instead:
//! where it differs, or with `all` everywhere, for fresh figures.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

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
    // From the last to the first, so that line numbers stay valid.
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
fn the_commands_of_the_readme_work() {
    follow("README.md");
}

#[test]
fn the_commands_of_the_tutorial_work() {
    follow("docs/TUTORIAL.md");
}

#[test]
fn the_commands_of_the_grading_page_work() {
    follow("docs/GRADING.md");
}

#[test]
fn the_commands_of_the_isolation_page_work() {
    follow("docs/ISOLATION.md");
}

#[test]
fn the_commands_of_the_guide_work() {
    follow("docs/SANDBOX_RUN.md");
}

#[test]
fn the_commands_of_the_languages_page_work() {
    follow("docs/LANGUAGES.md");
}

#[test]
fn the_commands_of_the_network_page_work() {
    follow("docs/NETWORK.md");
}

#[test]
fn the_commands_of_the_images_page_work() {
    follow("docs/IMAGES.md");
}

#[test]
fn the_commands_of_the_server_page_work() {
    follow("docs/SERVER.md");
}
